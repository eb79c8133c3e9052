"""The dropouts of a model: each acts only where it says, none in evaluation, and none is 1 or less than 0."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from crosslight import build as building
from crosslight.config.compose import compose
from crosslight.errors import ConfigError
from crosslight.models.encoder_decoder import EncoderDecoder

SOURCE = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 3, 0, 0]])
TARGET = torch.tensor([[1, 5, 6, 7], [1, 4, 0, 0]])
PLACES = {
    "dropout": {"around"},
    "attention_dropout": {"self_attention", "cross_attention"},
    "activation_dropout": {"feed_forward"},
    "embedding_dropout": {"embedding"},
}


def random_parts(model: EncoderDecoder) -> set[str]:
    """The kinds of parts that answer the same question differently when it is asked again."""
    x, y = torch.randn(2, 4, 12), torch.randn(2, 4, 12)

    def attends(attention: Any) -> Callable[[], torch.Tensor]:
        return lambda: attention(attention.queries(x), attention.project(y), None)

    asked: dict[str, list[Callable[[], torch.Tensor]]] = {
        "embedding": [lambda: model.source_embedding(SOURCE), lambda: model.target_embedding(TARGET)],
        "around": [],
        "self_attention": [],
        "cross_attention": [],
        "feed_forward": [],
    }
    for layer in (*model.encoder.layers, *model.decoder.layers):
        for name, part in layer.named_children():
            if name.startswith("around"):
                asked["around"].append(lambda part=part: part.leave(x, y))
            elif name == "feed_forward":
                asked[name].append(lambda part=part: part(x))
            else:
                asked[name].append(attends(part))
    found = {}
    for name, questions in asked.items():
        assert questions
        answers = {not torch.equal(question(), question()) for question in questions}
        assert len(answers) == 1, f"some parts of kind {name} only"
        found[name] = answers.pop()
    return {name for name, differs in found.items() if differs}


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
@pytest.mark.parametrize("kind", list(PLACES))
def test_each_dropout_acts_only_where_it_says_and_in_training_only(build: Any, kind: str, activation: str) -> None:
    model = build(**{kind: 0.5}, activation=activation)
    assert random_parts(model) == set()
    assert torch.equal(model(SOURCE, TARGET), build(activation=activation)(SOURCE, TARGET))
    assert random_parts(model.train()) == PLACES[kind]


@pytest.mark.parametrize("kind", [*PLACES, "layer_drop"])
@pytest.mark.parametrize("value", [-0.1, 1.0, 1.5])
def test_what_is_no_probability_below_one_is_refused_by_name(build: Any, kind: str, value: float) -> None:
    with pytest.raises(ConfigError) as error:
        build(**{kind: value})
    assert str(error.value) == f"model.{kind}: {value} is not in [0, 1)"


def test_embedding_dropout_follows_dropout_unless_it_is_set() -> None:
    big = building.plain(compose(["model=big", "model.dropout=0.25"]))
    building.check(big)
    assert big["model"]["embedding_dropout"] == 0.25
    tiny = building.plain(compose(["model.dropout=0.25", "model.embedding_dropout=0.125"]))
    building.check(tiny)
    assert (tiny["model"]["dropout"], tiny["model"]["embedding_dropout"]) == (0.25, 0.125)
