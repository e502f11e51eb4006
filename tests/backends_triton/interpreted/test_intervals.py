"""Keys dealt to programs by value."""

# pyright: reportIndexIssue=false
# Kernels are launched by subscripts, which pyright does not know of.

import itertools

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from beamsieve_backends.triton_slots.intervals import interval_of

DEAD = -2139095041
LOWEST = -(1 << 31)
LARGEST = 2139095039
SIZE = 256


@triton.jit
def _intervals(keys, out, tau, kept, most, SIZE: tl.constexpr):
    number, parts = tl.program_id(0), tl.num_programs(0)
    held = tl.load(keys + tl.arange(0, SIZE))
    lower, upper = interval_of(held, tau, kept, number, parts, most)
    tl.store(out + 2 * number, lower)
    tl.store(out + 2 * number + 1, upper)


def intervals_of(keys, tau, parts, most):
    out = torch.zeros(parts, 2, dtype=torch.int32)
    _intervals[(parts,)](
        torch.from_numpy(keys), out, tau, int((keys >= tau).sum()), most, SIZE=len(keys)
    )
    return out.tolist()


def ordered(values):
    bits = np.asarray(values, np.float32).view(np.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def keys_like(shape, draw):
    anywhere = draw.integers(DEAD + 1, LARGEST, SIZE).astype(np.int32)
    return {
        "anywhere": anywhere,
        "scores": ordered(-4 * draw.random(SIZE)),
        "one far ahead": ordered(np.where(np.arange(SIZE) == 9, 3e38, -draw.random(SIZE))),
        "at both ends": np.where(anywhere % 2 == 0, DEAD + 1, LARGEST).astype(np.int32),
        "few values": ordered(-(anywhere % 5)),
        "all equal": np.full(SIZE, -5, np.int32),
        "few alive": np.where(np.arange(SIZE) < 7, anywhere, LOWEST).astype(np.int32),
        "none alive": np.full(SIZE, DEAD, np.int32),
    }[shape]


@pytest.mark.parametrize("parts", [1, 3, 5, 16])
@pytest.mark.parametrize(
    "shape",
    ["anywhere", "scores", "one far ahead", "at both ends", "few values", "all equal", "few alive",
     "none alive"],
)  # fmt: skip
def test_every_value_is_in_one_interval(shape, parts):
    keys = keys_like(shape, np.random.default_rng(parts))
    alive = np.sort(keys[keys > DEAD])
    tau = int(alive[len(alive) // 3]) if len(alive) > 99 else DEAD + 1
    found = intervals_of(keys, tau, parts, 64)
    # Neighbours find the border between them each for itself.
    assert found[0][1] == (1 << 31) - 1
    assert found[-1][0] == tau
    for (lower, _), (_, upper) in itertools.pairwise(found):
        assert lower == upper
    assert all(lower <= upper for lower, upper in found)


@pytest.mark.parametrize("shape", ["anywhere", "scores", "one far ahead"])
@pytest.mark.parametrize(("parts", "most"), [(2, 160), (3, 100), (5, 64)])
def test_no_interval_has_more_keys_than_a_program_ranks_at_once(shape, parts, most):
    keys = keys_like(shape, np.random.default_rng(most))
    sizes = [
        int(((keys >= lower) & (keys < upper)).sum())
        for lower, upper in intervals_of(keys, int(keys.min()), parts, most)
    ]
    assert sum(sizes) == SIZE
    assert max(sizes) <= most


def test_equal_keys_stay_together():
    keys = np.repeat(np.arange(8, dtype=np.int32) * 1000, SIZE // 8)
    for lower, upper in intervals_of(keys, 0, 6, 64):
        inside = np.unique(keys[(keys >= lower) & (keys < upper)])
        assert ((keys[:, None] == inside).sum(0) == SIZE // 8).all()
