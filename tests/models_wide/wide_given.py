"""A tiny Wide model, and beams as an engine would give them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from beamsieve.models.wide import Wide, WideConfig

CODEBOOKS = (5, 7, 9, 4)


@dataclass
class GivenBeams:
    tokens: Tensor
    parents: Tensor


def small(codebooks=CODEBOOKS, seed=0, **sizes):
    """In evaluation mode, and with weights that are far from their start."""
    torch.manual_seed(seed)
    given = {"width": 32, "layers": 2, "heads": 1, "feed": 48, "encoder_heads": 2, "longest": 6}
    model = Wide(WideConfig(**{**given, **sizes}), codebooks).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def some_sids(*shape, codebooks=CODEBOOKS):
    return torch.stack([torch.randint(0, size, shape) for size in codebooks], -1)


def first_beams(batch):
    return GivenBeams(
        torch.empty((batch, 1, 0), dtype=torch.int32),
        torch.full((batch, 1), -1, dtype=torch.int64),
    )


def next_beams(beams, width, vocabulary):
    """Random continuations of random parents; the last place of the last request is empty."""
    batch, places = beams.parents.shape
    parents = torch.randint(0, places, (batch, width))
    before = beams.tokens.gather(1, parents[..., None].expand(-1, -1, beams.tokens.shape[2]))
    tokens = torch.randint(0, vocabulary, (batch, width, 1), dtype=torch.int32)
    tokens = torch.cat([before, tokens], -1)
    tokens[-1, -1], parents[-1, -1] = -1, -1
    return GivenBeams(tokens, parents)


@torch.no_grad()
def spelt(model, reading, tokens):
    """The naive decoder: a whole forward over every prefix."""
    columns = reading.context.shape[1]
    seen = torch.arange(columns) < reading.lengths[:, None]
    seen = seen[:, None].expand(-1, tokens.shape[1], -1)
    return model.spell(reading.context, seen, tokens.long().clamp(min=0))[:, :, -1]
