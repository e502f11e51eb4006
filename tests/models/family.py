"""Tiny models of the whole family, for the tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from beamsieve.models.batches import Batch
from beamsieve.models.config import ARCHITECTURES, ModelConfig
from beamsieve.models.family import make_model
from beamsieve.models.generator import Generator

CODEBOOKS = (5, 7, 9, 4)
KINDS = [(name, pointer) for name in ARCHITECTURES for pointer in (False, True)]
NAMES = [name + "+pointer" * pointer for name, pointer in KINDS]


def small(kind: tuple[str, bool] = ("deco", False), seed: int = 0, **sizes: Any) -> Generator:
    """Random weights with sharp heads, so that what it says depends on history and prefix."""
    torch.manual_seed(seed)
    known: dict[str, Any] = {"width": 32, "heads": 2, "decoder_width": 16, "decoder_layers": 2}
    known |= {"longest": 6, "architecture": kind[0], "pointer": kind[1], **sizes}
    model = make_model(ModelConfig(**known), CODEBOOKS).eval()
    with torch.no_grad():
        for head in model.heads:
            head.weight.mul_(30)
    return model


def some_sids(*shape: int) -> Tensor:
    """Random semantic IDs int64 [..., 4]."""
    return torch.stack([torch.randint(0, size, shape) for size in CODEBOOKS], -1)


def one_batch(histories: Tensor, targets: Tensor, lengths: Tensor) -> Batch:
    """Each history's next item alone."""
    return Batch(histories, targets, torch.arange(len(histories)), lengths)
