"""The best of rows of keys: the order among equals, empty places, and both ways to find them."""

from __future__ import annotations

import math

import pytest
import torch

from beamsieve_backends.torch_dense import gemm
from beamsieve_backends.torch_dense.selection import best_of_rows

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("columns", [1, 3, 8, 31, 33, 200])  # 8 wide: sorted at once up to 32
def test_the_best_come_first_and_equals_in_their_order(columns, device):
    draw = torch.Generator().manual_seed(columns)
    # Few distinct keys, so that most are equal to others; both zeros are one key.
    values = torch.tensor([-math.inf, -2.0, -0.0, 0.0, 1.5])
    keys = values[torch.randint(0, 5, (40, columns), generator=draw)]
    keys[0] = -math.inf
    place, empty = (array.cpu() for array in best_of_rows(keys.to(device), 8))
    for row, mine, none in zip(keys.tolist(), place.tolist(), empty.tolist(), strict=True):
        alive = [at for at, key in enumerate(row) if key > -math.inf]
        best = sorted(alive, key=lambda at: -row[at])[:8]
        assert none == [at >= len(best) for at in range(8)]
        assert mine[: len(best)] == best
        assert all(0 <= at < columns for at in mine)


@pytest.mark.parametrize("columns", [3, 200])
def test_rows_without_any_candidate_are_empty(columns):
    place, empty = best_of_rows(torch.full((2, columns), -math.inf), 8)
    assert empty.all()
    assert ((place >= 0) & (place < columns)).all()


@pytest.mark.parametrize(
    ("processor", "library"),
    [("Intel(R) Xeon(R) Processor", "blas"), ("AMD EPYC 9965 192-Core Processor", "onednn")],
)
def test_the_library_of_the_product_follows_the_processor(monkeypatch, processor, library):
    if not (gemm.has_onednn() and torch.backends.mkl.is_available()):
        pytest.skip("this PyTorch has one library alone")
    monkeypatch.setattr(gemm, "processor_name", lambda: processor)
    gemm._runs_on_mkl.cache_clear()
    assert gemm._takes_onednn(None) == (library == "onednn")
    gemm._runs_on_mkl.cache_clear()
