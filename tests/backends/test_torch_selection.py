"""Parts of a step: the best of rows of keys, the product's library, unusable logits in blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import beamsieve as bs
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


@pytest.mark.parametrize("places", [20, 130])  # blocks that are taken all at once, and one by one
def test_unusable_logits_die_in_blocks_of_either_size(places):
    draw = np.random.default_rng(0)
    index = bs.Index.build(bs.Catalog.from_arrays(draw.integers(0, 200, (9000, 2)), codebooks=200))
    engines = [bs.Engine(index, backend=name) for name in ("torch:cpu", "reference")]
    logits = draw.standard_normal((3, places, 200)).astype(np.float32)
    for at, value in enumerate((np.nan, np.inf, -np.inf)):
        logits[at, :, at::7] = value
        logits[1, at] = value  # a beam without any candidate
    found = []
    for engine in engines:
        beams = engine.begin(batch=3)
        beams = engine.step(beams, places, logits=np.zeros((3, 1, 200), np.float32))
        found.append(engine.step(beams, 50, logits=logits))
    for name in ("tokens", "rows", "parents", "count"):
        ours, spec = (np.asarray(getattr(beams, name)) for beams in found)
        assert np.array_equal(ours, spec), name
    ours, spec = (np.asarray(beams.scores) for beams in found)
    assert np.allclose(ours, spec, atol=1e-5)
