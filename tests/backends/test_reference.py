"""The reference backend is the specification, rounded to float32 at the interface."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import beamsieve as bs
import beamsieve_spec as spec

ROWS = np.array([[0, 1, -1], [0, 2, 3], [1, 0, 0], [1, 0, 4], [2, 2, 2]])


@pytest.mark.parametrize("end_token", [False, True])
@pytest.mark.parametrize("normalize", ["all", "catalog", "eligible"])
def test_it_gives_what_the_specification_gives(end_token, normalize):
    codebooks = [3, 3, 5]
    catalog = bs.Catalog.from_arrays(ROWS, codebooks=codebooks, end_token=end_token)
    engine = bs.Engine(bs.Index.build(catalog), backend="reference", normalize=normalize)
    trie = spec.Trie(ROWS.tolist(), codebooks=codebooks, end_token=end_token)
    draw = np.random.default_rng(0)
    beams, expected = engine.begin(2), spec.begin(trie, 2)
    for size in trie.codebooks:
        logits = draw.normal(size=(2, beams.width, size)).astype(np.float32)
        nudge = draw.normal(size=logits.shape).astype(np.float32)
        beams = engine.step(beams, 4, logits=logits, nudge=nudge)
        expected = spec.step(trie, expected, 4, logits, normalize, nudge=nudge)
        for name in ("tokens", "rows", "parents", "finished", "count"):
            np.testing.assert_array_equal(getattr(beams, name), getattr(expected, name))
        assert beams.scores.dtype == beams.keys.dtype == np.float32
        np.testing.assert_allclose(beams.scores, expected.scores, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(beams.keys, expected.keys, rtol=1e-6, atol=1e-6)


def test_float64_and_float16_inputs_are_taken_as_they_are():
    engine = bs.Engine(bs.Index.build(bs.Catalog.from_arrays(ROWS)), backend="reference")
    for dtype in (np.float64, np.float16):
        hidden, head = np.ones((1, 1, 2), dtype), np.eye(3, 2, dtype=dtype)
        assert int(engine.step(engine.begin(1), 3, hidden=hidden, head=head).count[0]) == 3


def test_bfloat16_is_refused_by_name():
    engine = bs.Engine(bs.Index.build(bs.Catalog.from_arrays(ROWS)), backend="reference")
    with pytest.raises(bs.InputError, match="logits cannot be read as a NumPy array"):
        engine.step(engine.begin(1), 3, logits=torch.zeros(1, 1, 3, dtype=torch.bfloat16))
