"""What belongs together: candidates and beams, beams and backend, a search and its plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import beamsieve as bs

CODEBOOKS = (3, 4, 5)


def flat(beams, batch=1):
    """Logits that say nothing."""
    return np.zeros((batch, beams.width, CODEBOOKS[beams.step]), np.float32)


def other_index() -> bs.Index:
    return bs.Index.build(
        bs.Catalog.from_arrays(np.array([(0, 0, 0), (2, 3, 4)]), codebooks=CODEBOOKS)
    )


def both(index):
    return [bs.Engine(index, backend=config) for config in ("torch:cpu", "reference")]


class TestCandidates:
    def test_of_other_beams_are_refused(self, index):
        for engine in both(index):
            first = engine.begin(1)
            found = engine.candidates(first, logits=flat(first))
            second = engine.select(first, found, 2)
            third = engine.step(first, 3, logits=flat(first))
            swapped = bs.Engine(other_index(), backend=engine.backend)
            for others in (second, third, engine.begin(1), swapped.begin(1)):
                with pytest.raises(bs.InputError, match="not of these beams"):
                    engine.select(others, found, 2)

    def test_that_no_engine_found_are_refused(self, engine):
        first = engine.begin(1)
        found = replace(engine.candidates(first, logits=flat(first)), beams=None)
        with pytest.raises(bs.InputError, match="not of these beams"):
            engine.select(first, found, 2)

    @pytest.mark.parametrize("junk", [None, 5, "candidates", (1, 2, 3)])
    def test_that_are_none_are_refused(self, engine, junk):
        with pytest.raises(bs.InputError, match="candidates is a"):
            engine.select(engine.begin(1), junk, 2)

    def test_may_get_other_scores(self, index):
        for engine in both(index):
            first = engine.begin(1)
            found = engine.candidates(first, logits=flat(first))
            scores = np.asarray(found.scores).copy()
            scores[0, 0] = [1, 3, 2]
            after = engine.select(first, replace(found, scores=scores), 2)
            assert np.asarray(after.tokens)[0, :, 0].tolist() == [1, 2]
            assert np.asarray(after.scores)[0].tolist() == [3, 2]
            with pytest.raises(bs.InputError, match=r"candidates\.scores has the shape"):
                engine.select(first, replace(found, scores=scores[:, :, :2]), 2)
            with pytest.raises(bs.InputError, match=r"candidates\.scores is float64"):
                engine.select(first, replace(found, scores=scores.astype(np.float64)), 2)

    @pytest.mark.parametrize("what", ["tokens", "rows"])
    def test_may_get_no_other_tokens_or_rows(self, index, what):
        for engine in both(index):
            first = engine.begin(1)
            found = engine.candidates(first, logits=flat(first))
            other = replace(found, **{what: np.asarray(getattr(found, what)).copy()})
            with pytest.raises(bs.InputError, match=f"The {what} of these candidates were repl"):
                engine.select(first, other, 2)


class TestBeams:
    def test_of_another_backend_are_refused(self, index):
        torch_engine, reference = both(index)
        for mine, other in ((torch_engine, reference), (reference, torch_engine)):
            beams = mine.begin(1)
            ended = mine.search(lambda _, beams: flat(beams), widths=[2, 2, 2], batch=1)
            found = mine.candidates(beams, logits=flat(beams))
            for call in (
                lambda other=other, beams=beams: other.step(beams, 2, logits=flat(beams)),
                lambda other=other, beams=beams: other.candidates(beams, logits=flat(beams)),
                lambda other=other, beams=beams, found=found: other.select(beams, found, 2),
                lambda other=other, ended=ended: other.results(ended),
            ):
                with pytest.raises(bs.InputError, match="These beams are of the backend"):
                    call()

    def test_of_another_engine_on_the_same_backend_go_on(self, index):
        mine, other = (bs.Engine(index, backend="torch:cpu") for _ in range(2))
        beams = mine.begin(1)
        after = other.step(beams, 2, logits=flat(beams))
        assert torch.equal(after.tokens, mine.step(beams, 2, logits=flat(beams)).tokens)

    @pytest.mark.parametrize("junk", [None, 5, "beams", np.zeros((1, 1))])
    def test_that_are_none_are_refused(self, engine, junk):
        logits = np.zeros((1, 1, 3), np.float32)
        for call in (
            lambda: engine.step(junk, 2, logits=logits),
            lambda: engine.candidates(junk, logits=logits),
            lambda: engine.select(junk, None, 2),
            lambda: engine.results(junk),
        ):
            with pytest.raises(bs.InputError, match="beams is a"):
                call()


def test_a_search_ends_on_the_plan_that_it_began_on(engine, heads, monkeypatch):
    measured = engine.warm_up(batch=1, widths=[3, 3, 3], head=heads, repeats=1)
    full, selective = (
        replace(measured, steps=(projection,) * 3) for projection in ("full", "selective")
    )
    asked = []
    step = type(engine._backend).step

    def spy(self, beams, inputs, normalize):
        asked.append(inputs.projection)
        return step(self, beams, inputs, normalize)

    monkeypatch.setattr(type(engine._backend), "step", spy)
    engine.use_plan(full)

    def score(step, beams):
        engine.use_plan(selective)
        return np.ones((1, beams.width, 6), np.float32), heads[step - 1]

    engine.search(score, widths=[3, 3, 3], batch=1)
    engine.search(score, widths=[3, 3, 3], batch=1)
    assert asked == ["full"] * 3 + ["selective"] * 3


def test_the_first_half_of_a_step_follows_the_plan(engine, heads, monkeypatch):
    measured = engine.warm_up(batch=1, widths=[1, 1, 1], head=heads, repeats=1)
    asked = []
    candidates = type(engine._backend).candidates

    def spy(self, beams, inputs, normalize):
        asked.append(inputs.projection)
        return candidates(self, beams, inputs, normalize)

    monkeypatch.setattr(type(engine._backend), "candidates", spy)
    for projection in ("full", "selective"):
        engine.use_plan(replace(measured, steps=(projection,) * 3))
        engine.candidates(engine.begin(1), hidden=np.ones((1, 1, 6), np.float32), head=heads[0])
    assert asked == ["full", "selective"]


class TestHeadsOfWarmUp:
    @pytest.fixture
    def even(self) -> bs.Engine:
        draw = np.random.default_rng(0)
        catalog = bs.Catalog.from_arrays(draw.integers(0, 4, (20, 3)), codebooks=(4, 4, 4))
        return bs.Engine(bs.Index.build(catalog), backend="torch:cpu")

    @pytest.mark.parametrize("of", [np.asarray, torch.from_numpy])
    def test_one_array_with_three_dimensions_is_a_head_per_level(self, even, of):
        heads = np.random.default_rng(0).normal(size=(3, 4, 6)).astype(np.float32)
        plan = even.warm_up(batch=2, widths=[3, 3, 3], head=of(heads), repeats=1)
        assert (len(plan.steps), plan.hidden_size) == (3, 6)
        rest = even.warm_up(batch=1, widths=[3, 3], head=of(heads[1:]), prefix=[[0]], repeats=1)
        assert (len(rest.steps), rest.start) == (2, 1)

    def test_one_head_serves_every_level(self, even):
        head = np.zeros((4, 6), np.float32)
        assert len(even.warm_up(1, [2, 2, 2], head, repeats=1).steps) == 3

    @pytest.mark.parametrize(
        ("head", "says"),
        [
            (np.zeros((2, 4, 6), np.float32), "2 heads, but 3 levels"),
            (np.zeros((0, 4, 6), np.float32), "0 heads, but 3 levels"),
            (np.zeros(4, np.float32), r"head has the shape \(4,\)"),
            (np.zeros((), np.float32), r"head has the shape \(\)"),
            (np.zeros((0, 6), np.float32), r"head has the shape \(0, 6\)"),
            (np.zeros((4, 0), np.float32), r"head has the shape \(4, 0\)"),
            (np.zeros((3, 5, 6), np.float32), r"head has the shape \(5, 6\); level 1"),
            (np.zeros((1, 3, 4, 6), np.float32), "head has the shape"),
            (np.zeros((4, 6), np.int64), "head is int64"),
            ([np.zeros(4, np.float32)] * 3, r"head has the shape \(4,\)"),
            (None, "head is a NoneType"),
            ([None] * 3, "head is a NoneType"),
        ],
    )
    def test_others_are_refused(self, even, head, says):
        with pytest.raises(bs.InputError, match=says):
            even.warm_up(batch=1, widths=[2, 2, 2], head=head, repeats=1)
