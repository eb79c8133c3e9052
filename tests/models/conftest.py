"""A small model with all sizes different and every weight random, as tests of whole models want it."""

from functools import partial

import pytest
import torch

from crosslight.models.encoder_decoder import EncoderDecoder
from crosslight.nn.positions import LearnedPositions, Positions, RotaryPositions, SinusoidalPositions
from crosslight.nn.residual import PostNorm

POSITIONS = {
    "none": Positions,
    "sinusoidal": SinusoidalPositions,
    "learned": partial(LearnedPositions, max_positions=64),
    "rotary": RotaryPositions,
}


@pytest.fixture
def build():
    """`build(positions=…, **changes)` makes a model in evaluation mode; pad id 0, no norm or bias left at its start."""

    def build(*, positions: str = "sinusoidal", seed: int = 1, **changes) -> EncoderDecoder:
        settings = {
            "d_model": 12,
            "d_ff": 20,
            "num_heads": 3,
            "num_encoder_layers": 2,
            "num_decoder_layers": 3,
            "activation": "relu",
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "activation_dropout": 0.0,
            "embedding_dropout": 0.0,
            "layer_drop": 0.0,
            "tie": "none",
            "encoder_window": None,
            "residual": PostNorm,
            "source_vocab_size": 11,
            "target_vocab_size": 13,
            "pad_id": 0,
        } | changes
        torch.manual_seed(seed)
        model = EncoderDecoder(positions=POSITIONS[positions], **settings)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
        return model.eval()

    return build


@pytest.fixture(params=list(POSITIONS))
def positions(request) -> str:
    """Each kind of positions in turn."""
    return request.param


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(1)
