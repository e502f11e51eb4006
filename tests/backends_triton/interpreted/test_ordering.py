"""Thresholds among the keys that one program holds."""

# pyright: reportIndexIssue=false
# Kernels are launched by subscripts, which pyright does not know of.

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import threshold_held

DEAD = -2139095041
SIZE = 256


@triton.jit
def _thresholds(keys, out, k, slack, SIZE: tl.constexpr):
    tau, need = threshold_held(tl.load(keys + tl.arange(0, SIZE)), k, slack)
    tl.store(out, tau)
    tl.store(out + 1, need)


def kept_of(keys, k, slack):
    """What a threshold leaves of them: those above it, and as many of its equals as it says."""
    out = torch.zeros(2, dtype=torch.int32)
    _thresholds[(1,)](torch.from_numpy(keys), out, k, slack, SIZE=len(keys))
    tau, need = out.tolist()
    above = keys[keys > tau]
    return np.concatenate([above, keys[keys == tau][: max(0, need)]])


def keys_like(shape, draw):
    wide = draw.integers(DEAD + 1, 1 << 31, SIZE).astype(np.int32)
    return {
        "anywhere": wide,
        "in a narrow band": (wide % 7 + 1000).astype(np.int32),
        "at both ends": np.where(wide % 2 == 0, DEAD + 1, 2139095039).astype(np.int32),
        "neighbours": np.arange(SIZE, dtype=np.int32) - 128,
        "all equal": np.full(SIZE, -5, np.int32),
        "few alive": np.where(np.arange(SIZE) < 9, wide, DEAD).astype(np.int32),
    }[shape]


@pytest.mark.parametrize("slack", [0, 5])
@pytest.mark.parametrize("k", [1, 10, 200])
@pytest.mark.parametrize(
    "shape",
    ["anywhere", "in a narrow band", "at both ends", "neighbours", "all equal", "few alive"],
)
def test_the_best_are_kept_and_few_more(shape, k, slack):
    keys = keys_like(shape, np.random.default_rng(k))
    alive = np.sort(keys[keys > DEAD])[::-1]
    kept = np.sort(kept_of(keys, k, slack))[::-1]
    kept = kept[kept > DEAD]
    wanted = min(k, len(alive))
    np.testing.assert_array_equal(kept[:wanted], alive[:wanted])
    assert len(kept) <= k + slack


def test_as_many_keys_as_a_program_may_hold():
    keys = np.random.default_rng(3).integers(-1000000, 1000000, 1 << 15).astype(np.int32)
    kept = np.sort(kept_of(keys, 30000, 40))[::-1]
    np.testing.assert_array_equal(kept[:30000], np.sort(keys)[::-1][:30000])
    assert len(kept) <= 30040
