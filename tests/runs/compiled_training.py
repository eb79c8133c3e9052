"""Updates of a small model with and without torch.compile, on batches of many shapes; prints what came out as JSON.

A program of its own, for torch.compile cannot read the annotations that the tests execute. Its arguments
are the config's overrides; `sharded` before them spreads the model over one process.
"""

import json
import sys

import torch
from texts import numbers
from torch._dynamo.utils import counters
from torch.distributed.device_mesh import init_device_mesh

from crosslight.batches import Batch
from crosslight.build import build_model, build_objective, make, plain
from crosslight.config.compose import compose
from crosslight.runs.compiling import compile_layers
from crosslight.tasks.randomness import seed_position
from crosslight.tasks.sharding import gather_weights, shard

# rows, source and target lengths; equal ones and ones of size 1 are where torch.compile makes further graphs
SHAPES = [(8, 8, 8), (1, 5, 5), (4, 1, 3), (3, 6, 1), (2, 128, 16)]
SHAPES += [(2 + n % 7, 2 + 5 * n % 23, 2 + 3 * n % 17) for n in range(20)]


def batch(rows: int, source: int, target: int, vocab: int, pad: int, index: int) -> Batch:
    """Random ids; each row is padded to the right, the last one not."""
    draw = torch.Generator().manual_seed(index)

    def ids(length: int) -> torch.Tensor:
        symbols = torch.randint(4, vocab, (rows, length), generator=draw)
        lengths = torch.randint(1, length + 1, (rows, 1), generator=draw)
        lengths[-1] = length
        return symbols.masked_fill(torch.arange(length) >= lengths, pad)

    wanted = ids(target)
    return Batch(ids(source), wanted.roll(1, dims=1), wanted, tuple(range(rows)), index=index)


def losses(overrides: list[str], *, compiled: bool, sharded: bool) -> tuple[list[float], torch.nn.Module]:
    """The loss of each update, and the trained model."""
    config, tokenizers = plain(compose(overrides)), numbers(50)
    torch.manual_seed(1)
    model = build_model(config, tokenizers).train()
    if compiled:
        compile_layers(model, "aot_eager")
    if sharded:
        shard(model, init_device_mesh("cpu", (1,)))
    pad = tokenizers.source.pad_id
    objective = build_objective(config, pad_id=pad)
    optimizer = make(config["optimizer"])(model.parameters())
    found = []
    for index, shape in enumerate(SHAPES):
        made = batch(*shape, tokenizers.source.vocab_size, pad, index)
        optimizer.zero_grad()
        seed_position(1, 0, index, torch.device("cpu"))
        loss = objective(model, made)
        (loss.total / loss.count).backward()
        optimizer.step()
        found.append(float(loss.total.detach() / loss.count))
    return found, model


def graphs() -> int:
    """How many graphs torch has made so far."""
    return counters["stats"]["unique_graphs"]


def main(overrides: list[str]) -> None:
    sharded = overrides[:1] == ["sharded"]
    if sharded:
        overrides = overrides[1:]
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    eager, plain_model = losses(overrides, compiled=False, sharded=sharded)
    assert not graphs()
    compiled, model = losses(overrides, compiled=True, sharded=sharded)
    in_training = graphs()
    model.eval()
    if sharded:
        gather_weights(model)
    with torch.no_grad():
        state = model.encode(torch.randint(4, 50, (3, 7)))  # type: ignore[operator]
        for _ in range(3):
            _, state = model.decode(torch.randint(4, 50, (3, 1)), state)  # type: ignore[operator]
    found = {
        "eager": eager,
        "compiled": compiled,
        "graphs": in_training,
        "graphs_of_search": graphs() - in_training,
        "breaks": dict(counters["graph_break"]),
        "same_names": list(model.state_dict()) == list(plain_model.state_dict()),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
