"""What a model might say: random logits, hidden states and heads, plain or awkward."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from beamsieve_conformance.arrays import round_to
from beamsieve_conformance.oracle import Inputs

Kind = Literal["smooth", "tied", "spiked"]
KINDS: tuple[Kind, ...] = ("smooth", "tied", "spiked")
HIDDEN = 8
"""d of the random hidden states."""


def values(rng: np.random.Generator, shape: tuple[int, ...], kind: Kind) -> NDArray[np.float64]:
    """Random numbers: "smooth" ones all differ, "tied" ones repeat, "spiked" ones include
    NaN, -inf and +inf among smooth ones."""
    if kind == "tied":
        return rng.integers(-2, 3, shape).astype(np.float64)
    numbers = 2.0 * rng.standard_normal(shape)
    if kind == "spiked":
        spikes = rng.choice([np.nan, np.inf, -np.inf], shape)
        numbers = np.where(rng.random(shape) < 0.15, spikes, numbers)
    return numbers


def given_logits(
    rng: np.random.Generator,
    shape: tuple[int, int, int],
    kind: Kind = "smooth",
    dtype: str = "float32",
    **guidance: Any,
) -> Inputs:
    """Logits [B, M, V]."""
    return Inputs(logits=round_to(values(rng, shape, kind), dtype), dtype=dtype, **guidance)


def given_hidden(
    rng: np.random.Generator,
    shape: tuple[int, int, int],
    kind: Kind = "smooth",
    dtype: str = "float32",
    bias: bool = False,
    **guidance: Any,
) -> Inputs:
    """Hidden states [B, M, d] and a head [V, d] whose products are some [B, M, V]."""
    batch, places, vocabulary = shape
    # Spikes sit in the bias or in the hidden states' stead nowhere: one NaN would fill whole rows.
    plain: Kind = "smooth" if kind == "spiked" else kind
    return Inputs(
        hidden=round_to(values(rng, (batch, places, HIDDEN), plain), dtype),
        head=round_to(0.5 * values(rng, (vocabulary, HIDDEN), plain), dtype),
        bias=round_to(values(rng, (vocabulary,), kind), dtype) if bias else None,
        dtype=dtype,
        **guidance,
    )


def given_guidance(
    rng: np.random.Generator, shape: tuple[int, int, int], kind: Kind = "smooth"
) -> NDArray[np.float32]:
    """A bonus or a nudge, float32 [B, M, V]."""
    return values(rng, shape, kind).astype(np.float32)
