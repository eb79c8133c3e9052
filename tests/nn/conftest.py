"""The same random numbers for every test of the blocks, whatever ran before."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(1)
