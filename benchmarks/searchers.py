"""Others' searches on a trained run's own weights, for `decode.py`: Hugging Face `generate` and CTranslate2.

Each is a function from (run, options) to a dictionary: for each setting that is worth a try, a function that
translates ids into ids. The caller takes the fastest.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

Ids = list[list[int]]
Translate = Callable[[Ids], Ids]


def batches_by_length(sources: Ids, size: int) -> Iterator[list[int]]:
    """Numbers of sentences of like length, the longest first."""
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    return (order[i : i + size] for i in range(0, len(order), size))


def huggingface(run: Any, options: dict[str, Any]) -> dict[str, Translate]:
    """`generate` with eager attention, the fastest on a CPU; sentences are batched by length."""
    model = huggingface_model(run).eval()
    pad, beam = run.tokenizers.source.pad_id, options["beam"]
    search = {
        "num_beams": beam,
        "do_sample": False,
        "length_penalty": options["length_penalty"],
        "early_stopping": beam > 1,
        "use_cache": True,
    }

    def of_size(size: int) -> Translate:
        @torch.inference_mode()
        def translate(sources: Ids) -> Ids:
            found: Ids = [[] for _ in sources]
            for rows in batches_by_length(sources, size):
                width = len(sources[rows[0]])
                ids = torch.tensor([sources[i] + [pad] * (width - len(sources[i])) for i in rows])
                output = model.generate(
                    input_ids=ids, attention_mask=(ids != pad).long(), max_new_tokens=width + 50, **search
                )
                for row, written in zip(rows, output.tolist(), strict=True):
                    found[row] = written[1:]
            return found

        return translate

    return {f"batches of {size}": of_size(size) for size in options["huggingface_batch"]}


def huggingface_model(run: Any) -> Any:
    """The run's weights as M2M100 (pre-norm) or Marian (post-norm), with the run's positions."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration, MarianConfig, MarianMTModel

    from crosslight.nn.feed_forward import FeedForward
    from crosslight.nn.positions import SinusoidalPositions, sinusoids
    from crosslight.nn.residual import PostNorm, PreNorm

    ours, source, target = run.model, run.tokenizers.source, run.tokenizers.target
    first = ours.encoder.layers[0]
    kind = type(first.around_self)
    plain = isinstance(first.feed_forward, FeedForward) and run.config["model"]["activation"] == "relu"
    same_table = ours.source_embedding.table.weight is ours.output.weight
    sinusoidal = type(ours.source_embedding.positions) is SinusoidalPositions
    if not (kind in (PreNorm, PostNorm) and plain and same_table and sinusoidal):
        raise SystemExit("huggingface: needs tie=all, ReLU, sinusoidal positions, pre- or post-norm")
    settings = {
        "vocab_size": target.vocab_size,
        "d_model": run.config["model"]["d_model"],
        "encoder_layers": len(ours.encoder.layers),
        "decoder_layers": len(ours.decoder.layers),
        "encoder_attention_heads": first.self_attention.num_heads,
        "decoder_attention_heads": first.self_attention.num_heads,
        "encoder_ffn_dim": run.config["model"]["d_ff"],
        "decoder_ffn_dim": run.config["model"]["d_ff"],
        "activation_function": "relu",
        "scale_embedding": True,
        "pad_token_id": source.pad_id,
        "bos_token_id": target.bos_id,
        "eos_token_id": target.eos_id,
        "decoder_start_token_id": target.bos_id,
        "forced_eos_token_id": None,
        "max_position_embeddings": 1024,
        "attn_implementation": "eager",
    }
    pre_norm = kind is PreNorm
    theirs: Any = (
        M2M100ForConditionalGeneration(M2M100Config(**settings))
        if pre_norm
        else MarianMTModel(MarianConfig(**settings))
    )
    with torch.no_grad():
        theirs.model.shared.weight.copy_(ours.output.weight)
        table = sinusoids(1024, settings["d_model"])
        for part, stack in ((theirs.model.encoder, ours.encoder), (theirs.model.decoder, ours.decoder)):
            if pre_norm:  # its positions begin behind the id of padding
                part.embed_positions.weights[source.pad_id + 1 :][:1024] = table[: len(part.embed_positions.weights)]
                _copy(part.layer_norm, stack.last)
            else:
                part.embed_positions.weight.copy_(table)
            for layer, own in zip(part.layers, stack.layers, strict=True):
                _attention(layer.self_attn, own.self_attention)
                _copy(layer.self_attn_layer_norm, own.around_self.norm)
                if part is theirs.model.decoder:
                    _attention(layer.encoder_attn, own.cross_attention)
                    _copy(layer.encoder_attn_layer_norm, own.around_cross.norm)
                _copy(layer.fc1, own.feed_forward.inner)
                _copy(layer.fc2, own.feed_forward.outer)
                _copy(layer.final_layer_norm, own.around_feed.norm)
    return theirs


def _attention(theirs: Any, ours: Any) -> None:
    for name, part in (("q", ours.query), ("k", ours.key), ("v", ours.value), ("out", ours.output)):
        _copy(getattr(theirs, f"{name}_proj"), part)


def _copy(theirs: Any, ours: nn.Module) -> None:
    theirs.weight.copy_(ours.weight)
    theirs.bias.zero_() if ours.bias is None else theirs.bias.copy_(ours.bias)  # type: ignore[operator, arg-type]


def ctranslate2(run: Any, options: dict[str, Any]) -> dict[str, Translate]:
    """CTranslate2 in fp32: one translator with all threads, or one a thread; batches of several sizes."""
    from ctranslate2 import Translator

    from crosslight.export.ctranslate2_spec import ctranslate2_spec, pieces

    folder = Path(options["folder"]) / "ctranslate2"
    if not folder.is_dir():
        folder.mkdir()
        spec = ctranslate2_spec(run.model, run.tokenizers)
        spec.validate()
        spec.optimize()
        spec.save(str(folder))
    names, written = pieces(run.tokenizers.source), pieces(run.tokenizers.target)
    ids = {name: i for i, name in enumerate(written)}
    threads = torch.get_num_threads()

    def of(translator: Any, size: int) -> Translate:
        def translate(sources: Ids) -> Ids:
            results = translator.translate_batch(
                [[names[i] for i in source[:-1]] for source in sources],  # they close them with EOS
                beam_size=options["beam"],
                length_penalty=options["length_penalty"],
                max_batch_size=size,
                max_decoding_length=max(map(len, sources)) + 50,
                max_input_length=0,
            )
            return [[ids[name] for name in result.hypotheses[0]] for result in results]

        return translate

    found = {}
    for inter in {1, threads}:
        translator = Translator(
            str(folder), "cpu", compute_type="float32", inter_threads=inter, intra_threads=threads // inter
        )
        for size in options["ctranslate2_batch"]:
            found[f"{inter} translators, batches of {size}"] = of(translator, size)
    return found


SEARCHERS: dict[str, Callable[[Any, dict[str, Any]], dict[str, Translate]]] = {
    "huggingface": huggingface,
    "ctranslate2": ctranslate2,
}
