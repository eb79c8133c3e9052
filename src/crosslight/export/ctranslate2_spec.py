"""A trained model in the layout of CTranslate2 (https://github.com/OpenNMT/CTranslate2), all weights as they are.

Their attention has one matrix for queries, keys and values where they read the same, theirs of cross-attention one for
keys and values; a gated feed-forward network has its gate in `linear_0`. Positions are handed over as a table, for the
sinusoids that CTranslate2 makes by itself are laid out otherwise and count from 1.
"""

from typing import Any

import torch
from torch import nn

from crosslight.errors import ConfigError
from crosslight.models.encoder_decoder import EncoderDecoder
from crosslight.nn.attention import MultiHeadAttention
from crosslight.nn.decoder import DecoderLayer
from crosslight.nn.encoder import EncoderLayer
from crosslight.nn.feed_forward import GATED, PLAIN, FeedForward, GatedFeedForward
from crosslight.nn.positions import LearnedPositions, Positions, RotaryPositions, SinusoidalPositions, sinusoids
from crosslight.nn.residual import PostNorm, PreNorm
from crosslight.shapes import Float, Tensor
from crosslight.tokenizers.base import Tokenizer, Tokenizers

TABLE = 4096
"""For how many positions a table is written where the model has no limit of its own."""
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "glu": "Sigmoid", "reglu": "RELU", "geglu": "GELU", "swiglu": "SWISH"}
"""Their names of the activations, plain or in a gate."""
INSTEAD = "CTranslate2 has no such part; translate.py without engine=… has it"


def ctranslate2_spec(model: EncoderDecoder, tokenizers: Tokenizers) -> Any:
    """What `save` writes to a folder. Raises a ConfigError that names a setting which CTranslate2 cannot express."""
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

    check_expressible(model)
    layers: list[Any] = [*model.encoder.layers, *model.decoder.layers]
    first = layers[0]
    settings: dict[str, Any] = {
        "num_heads": first.self_attention.num_heads,
        "pre_norm": isinstance(first.around_self, PreNorm),
        "activation": Activation[ACTIVATIONS[_activation(first.feed_forward)]],
        "ffn_glu": isinstance(first.feed_forward, GatedFeedForward),
    }
    positions = model.source_embedding.positions
    if isinstance(positions, RotaryPositions):  # 0 dimensions: all of a head
        settings |= {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": positions.base}
    encoder = TransformerEncoderSpec(len(model.encoder.layers), **settings)
    decoder = TransformerDecoderSpec(len(model.decoder.layers), **settings)
    spec = TransformerSpec(encoder, decoder)

    encoder.embeddings[0].weight = model.source_embedding.table.weight
    decoder.embeddings.weight = model.target_embedding.table.weight
    decoder.projection.weight = model.output.weight
    sides: list[tuple[Any, Any, Any]] = [
        (encoder, model.source_embedding, model.encoder),
        (decoder, model.target_embedding, model.decoder),
    ]
    for side, embedding, stack in sides:
        if (table := _position_table(embedding.positions, embedding.table.embedding_dim)) is not None:
            side.position_encodings.encodings = table
        if settings["pre_norm"]:
            _norm(side.layer_norm, stack.last)
        for part, layer in zip(side.layer, stack.layers, strict=True):
            _layer(part, layer)

    _vocabularies(spec, tokenizers)
    return spec


def max_positions(model: EncoderDecoder) -> int | None:
    """How many positions an exported model has: more, where the model has no limit, than a sentence needs."""
    rotary = isinstance(model.source_embedding.positions, RotaryPositions)
    return TABLE if model.max_positions is None and not rotary else model.max_positions


def check_expressible(model: EncoderDecoder) -> None:
    """Raise a ConfigError at the first setting that CTranslate2 has nothing for."""
    if model.encoder_window is not None:
        raise ConfigError(f"model.encoder_window: {model.encoder_window}; {INSTEAD}")
    for key, stack in (("num_encoder_layers", model.encoder), ("num_decoder_layers", model.decoder)):
        if not len(stack.layers):
            raise ConfigError(f"model.{key}: 0; {INSTEAD}")
    known = (Positions, SinusoidalPositions, LearnedPositions, RotaryPositions)
    for embedding in (model.source_embedding, model.target_embedding):
        if type(embedding.positions) not in known:
            raise ConfigError(f"model.positions: {type(embedding.positions).__name__}; {INSTEAD}")
    for layer in (*model.encoder.layers, *model.decoder.layers):
        if type(layer.around_self) not in (PostNorm, PreNorm):
            raise ConfigError(f"model.residual: {type(layer.around_self).__name__}; {INSTEAD}")
        _activation(layer.feed_forward)


def _activation(feed_forward: Any) -> str:
    """The name by which a config calls the activation."""
    names = {FeedForward: PLAIN, GatedFeedForward: GATED}.get(type(feed_forward), {})
    for name, function in names.items():
        if function is feed_forward.activation and name in ACTIVATIONS:
            return name
    raise ConfigError(f"model.activation: {type(feed_forward).__name__}; {INSTEAD}")


def _position_table(positions: Positions, d_model: int) -> Float[Tensor, "position d_model"] | None:
    """What is added to the embeddings at each position; None for rotary ones, which add nothing."""
    if isinstance(positions, RotaryPositions):
        return None
    if isinstance(positions, LearnedPositions):
        return positions.table.weight.detach()
    if isinstance(positions, SinusoidalPositions):
        return sinusoids(TABLE, d_model)
    return torch.zeros(TABLE, d_model)  # without a table CTranslate2 would take its sinusoids


def _layer(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    _self_attention(spec.self_attention, layer.self_attention)
    _norm(spec.self_attention.layer_norm, layer.around_self.norm)
    if isinstance(layer, DecoderLayer):
        _cross_attention(spec.attention, layer.cross_attention)
        _norm(spec.attention.layer_norm, layer.around_cross.norm)
    feed_forward = layer.feed_forward
    if isinstance(feed_forward, GatedFeedForward):
        _linear(spec.ffn.linear_0, feed_forward.gate)
        _linear(spec.ffn.linear_0_noact, feed_forward.inner)
    else:
        _linear(spec.ffn.linear_0, feed_forward.inner)
    _linear(spec.ffn.linear_1, feed_forward.outer)
    _norm(spec.ffn.layer_norm, layer.around_feed.norm)


def _self_attention(spec: Any, attention: MultiHeadAttention) -> None:
    _linear(spec.linear[0], attention.query, attention.key, attention.value)
    _linear(spec.linear[1], attention.output)


def _cross_attention(spec: Any, attention: MultiHeadAttention) -> None:
    _linear(spec.linear[0], attention.query)
    _linear(spec.linear[1], attention.key, attention.value)
    _linear(spec.linear[2], attention.output)


def _linear(spec: Any, *layers: nn.Linear) -> None:
    """The layers below each other as one; one without a bias has a bias of zeros there."""
    weights = [layer.weight.detach() for layer in layers]
    spec.weight = torch.cat(weights)
    spec.bias = torch.cat([weights[0].new_zeros(y.out_features) if y.bias is None else y.bias.detach() for y in layers])


def _norm(spec: Any, norm: nn.LayerNorm) -> None:
    assert norm.eps == 1e-5, "theirs, where nothing else is said"
    spec.gamma, spec.beta = norm.weight.detach(), norm.bias.detach()


def _vocabularies(spec: Any, tokenizers: Tokenizers) -> None:
    """Both sides as lists of pieces; sources are closed by EOS, as in training."""
    source, target = tokenizers.source, tokenizers.target
    spec.register_source_vocabulary(pieces(source))
    spec.register_target_vocabulary(pieces(target))
    names = pieces(target)
    spec.config.bos_token = spec.config.decoder_start_token = names[target.bos_id]
    spec.config.eos_token = names[target.eos_id]
    spec.config.unk_token = names[target.pad_id if target.unk_id is None else target.unk_id]  # it has to be there
    spec.config.add_source_eos = True


def pieces(tokenizer: Tokenizer) -> list[str]:
    """The name of each id."""
    return tokenizer.pieces(range(tokenizer.vocab_size))
