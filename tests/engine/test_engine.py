"""The engine's own work: whole searches, the index that a search began on, plans."""

from __future__ import annotations

import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

import beamsieve as bs
from beamsieve.index import Index

CODEBOOKS = (3, 4, 5)


def scorer(heads, seed=0):
    """A model that is a function of the step and of the beams' tokens."""

    def score(step, beams):
        tokens = np.asarray(beams.tokens, np.int64)
        seeds = seed + step + (tokens * (1 + np.arange(tokens.shape[2]))).sum(2)
        states = np.stack(
            [[np.random.default_rng(s).normal(size=6) for s in row] for row in np.abs(seeds)]
        )
        return states.astype(np.float32), heads[step - 1]

    return score


def test_search_is_the_loop_of_steps(engine, heads):
    score = scorer(heads)
    beams = engine.begin(2)
    for step, width in enumerate((2, 4, 3), 1):
        states, head = score(step, beams)
        beams = engine.step(beams, width, hidden=states, head=head)
    once = engine.search(score, widths=[2, 4, 3], batch=2)
    assert torch.equal(beams.tokens, once.tokens)
    assert torch.equal(beams.scores, once.scores)
    assert beams.fingerprint == engine.index.fingerprint


def test_a_bias_may_be_the_third_of_a_tuple(engine, heads):
    biases = [np.linspace(0, 1, size, dtype=np.float32) for size in CODEBOOKS]
    plain = scorer(heads)
    beams = engine.search(
        lambda step, beams: (*plain(step, beams), biases[step - 1]), widths=[3, 3, 3], batch=1
    )

    def logits(step, beams):
        states, head = plain(step, beams)
        return states @ head.T + biases[step - 1]

    same = engine.search(logits, widths=[3, 3, 3], batch=1)
    assert torch.equal(beams.tokens, same.tokens)
    assert torch.allclose(beams.scores, same.scores, atol=1e-5)


def test_search_goes_on_from_a_prefix(engine, heads):
    prefix = np.array([[0], [2]])
    beams = engine.search(scorer(heads), widths=[2, 4], prefix=prefix)
    for b, first in enumerate((0, 2)):
        for hit in engine.results(beams)[b]:
            assert hit.sid[0] == first


def test_the_two_halves_are_one_step(engine, heads):
    score = scorer(heads)
    beams = engine.search(score, widths=[3, 4, 3], batch=2)
    halved = engine.begin(2)
    for step, width in enumerate((3, 4, 3), 1):
        states, head = score(step, halved)
        found = engine.candidates(halved, hidden=states, head=head)
        halved = engine.select(halved, found, width)
    assert torch.equal(beams.tokens, halved.tokens)
    assert torch.equal(beams.scores, halved.scores)


@pytest.mark.parametrize("config", ["torch:cpu", "reference"])
def test_anything_with_dlpack_or_the_array_interface_will_do(index, heads, config):
    engine = bs.Engine(index, backend=config)
    states = np.random.default_rng(0).normal(size=(2, 1, 6)).astype(np.float32)
    read_only = heads[0].copy()
    read_only.flags.writeable = False

    class Interface:
        def __init__(self, array):
            self.__array_interface__ = array.__array_interface__
            self.kept = array

    scores = [
        np.asarray(engine.step(engine.begin(2), 3, hidden=h, head=w).scores)
        for h, w in [
            (states, heads[0]),
            (torch.from_numpy(states), torch.from_numpy(heads[0])),
            (torch.from_numpy(states).requires_grad_(), read_only),
            (Interface(states), heads[0][::-1].copy()[::-1]),
        ]
    ]
    for other in scores[1:]:
        np.testing.assert_array_equal(scores[0], other)


def other_index() -> Index:
    return bs.Index.build(
        bs.Catalog.from_arrays(np.array([(0, 0, 0), (2, 3, 4)]), codebooks=CODEBOOKS)
    )


def test_a_search_ends_on_the_index_that_it_began_on(engine, index, heads):
    score = scorer(heads)
    undisturbed = engine.search(score, widths=[3, 3, 3], batch=1)
    beams = engine.begin(1)
    new = other_index()
    for step in (1, 2, 3):
        states, head = score(step, beams)
        beams = engine.step(beams, 3, hidden=states, head=head)
        engine.replace(new)
    assert engine.index is new
    assert beams.fingerprint == index.fingerprint
    assert torch.equal(beams.tokens, undisturbed.tokens)
    assert engine.results(beams) == engine.results(undisturbed)
    assert engine.begin(1).fingerprint == new.fingerprint


def test_searches_from_several_threads_agree_while_the_index_is_replaced(engine, index, heads):
    new = other_index()
    expected = {}
    for one in (index, new):
        engine.replace(one)
        for seed in range(4):
            beams = engine.search(scorer(heads, seed), widths=[3, 3, 3], batch=2)
            expected[one.fingerprint, seed] = beams.tokens, beams.scores
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            engine.replace(index)
            engine.replace(new)

    def work(seed):
        beams = engine.search(scorer(heads, seed), widths=[3, 3, 3], batch=2)
        tokens, scores = expected[beams.fingerprint, seed]
        assert torch.equal(beams.tokens, tokens)
        assert torch.equal(beams.scores, scores)
        return beams.fingerprint

    with ThreadPoolExecutor(5) as pool:
        swapping = pool.submit(swap)
        seen = set(pool.map(work, [seed % 4 for seed in range(80)]))
        stop.set()
        swapping.result()
    assert seen <= {index.fingerprint, new.fingerprint}


def test_what_the_engine_says_of_itself(engine):
    assert engine.backend == "torch:cpu"
    assert engine.device == "cpu"
    assert "selective" in engine.capabilities.projections
    assert "torch:cpu" in repr(engine)


class TestPlan:
    def test_warm_up_measures_every_step_and_the_engine_follows(self, engine, heads, monkeypatch):
        plan = engine.warm_up(batch=2, widths=[3, 3, 3], head=heads, repeats=1)
        assert plan == engine.plan
        assert len(plan.steps) == len(plan.milliseconds) == 3
        for chosen, times in zip(plan.steps, plan.milliseconds, strict=True):
            assert set(times) == {"full", "selective", "compiled"}
            assert times[chosen] == min(times.values())
        asked = []
        step = type(engine._backend).step

        def spy(self, beams, inputs, normalize):
            asked.append(inputs.projection)
            return step(self, beams, inputs, normalize)

        monkeypatch.setattr(type(engine._backend), "step", spy)
        engine.search(scorer(heads), widths=[3, 3, 3], batch=2)
        assert asked == list(plan.steps)
        asked.clear()
        engine.search(scorer(heads), widths=[3, 3, 3], batch=5)  # any batch: results stay the same
        assert asked == list(plan.steps)
        asked.clear()
        engine.search(scorer(heads), widths=[3, 2, 3], batch=2)
        assert asked == [plan.steps[0], None, None]

    def test_a_backend_may_say_how_long_its_device_takes(self, engine, heads, monkeypatch):
        names = engine.capabilities.projections
        said = itertools.cycle(range(len(names), 0, -1))

        def seconds(self, work):
            work()
            return next(said)

        monkeypatch.setattr(type(engine._backend), "seconds", seconds)
        plan = engine.warm_up(batch=2, widths=[3, 3, 3], head=heads, repeats=2)
        assert plan.steps == (names[-1],) * 3
        assert list(plan.milliseconds[0].values()) == [n * 1e3 for n in range(len(names), 0, -1)]

    def test_a_projection_is_timed_in_the_steps_that_it_takes(self, engine, heads, monkeypatch):
        def takes(self, beams, inputs, normalize):
            return ("selective",) if beams.step == 1 else ("full",)

        monkeypatch.setattr(type(engine._backend), "projections_for", takes)
        plan = engine.warm_up(batch=2, widths=[3, 3, 3], head=heads, repeats=1)
        assert plan.steps == ("full", "selective", "full")
        assert [set(times) for times in plan.milliseconds] == [{way} for way in plan.steps]

    def test_all_needs_every_logit_so_only_the_full_projection_is_timed(self, index, heads):
        engine = bs.Engine(index, backend="torch:cpu", normalize="all")
        plan = engine.warm_up(batch=1, widths=[2, 2, 2], head=heads, repeats=1)
        assert plan.steps == ("full", "full", "full")
        assert [set(times) for times in plan.milliseconds] == [{"full"}] * 3

    def test_save_and_load(self, engine, heads, tmp_path, index):
        plan = engine.warm_up(batch=2, widths=[3, 3, 3], head=heads, repeats=1)
        plan.save(tmp_path / "plan.json")
        loaded = bs.Plan.load(tmp_path / "plan.json")
        assert loaded == plan
        again = bs.Engine(index, backend="torch:cpu", plan=loaded)
        assert again.plan == plan

    def test_an_index_is_replaced_with_its_own_plan_or_without_one(
        self, engine, heads, index, caplog
    ):
        old = engine.warm_up(batch=2, widths=[3, 3, 3], head=heads, repeats=1)
        new = other_index()
        with pytest.raises(bs.InputError, match="index"):
            engine.replace(new, plan=old)
        with pytest.raises(bs.InputError, match=r"Plan\.load"):
            engine.replace(new, plan="full")
        assert engine.index is index
        assert engine.plan == old
        beside = bs.Engine(new, backend="torch:cpu")
        plan = beside.warm_up(batch=2, widths=[3, 3, 3], head=heads, repeats=1)
        engine.replace(new, plan=plan)
        assert engine.index is new
        assert engine.plan == plan
        with caplog.at_level("INFO", logger="beamsieve"):
            engine.replace(index)
        assert engine.plan is None
        assert "warm_up" in caplog.text

    def test_a_plan_for_something_else_is_refused(self, engine, heads, index):
        plan = engine.warm_up(batch=2, widths=[3, 3, 3], head=heads, repeats=1)
        with pytest.raises(bs.InputError, match="measured for the index"):
            bs.Engine(other_index(), backend="torch:cpu", plan=plan)
        with pytest.raises(bs.InputError, match="measured for the backend torch"):
            bs.Engine(index, backend="reference", plan=plan)
        with pytest.raises(bs.InputError, match="measured for the normalizer"):
            bs.Engine(index, backend="torch:cpu", normalize="eligible", plan=plan)
        elsewhere = replace(plan, device_name="another processor")
        with pytest.raises(bs.InputError, match="for the processor another processor"):
            bs.Engine(index, backend="torch:cpu", plan=elsewhere)

    def test_the_first_turn_of_each_projection_is_not_counted(self, engine, heads, monkeypatch):
        known = engine.capabilities.projections
        others = len(known) - 1
        cold, warm = [100.0] + [1.0] * others, [1.0] + [2.0] * others
        turns = itertools.cycle(cold + warm)
        monkeypatch.setattr(engine._backend, "seconds", lambda work: (work(), next(turns))[1])
        plan = engine.warm_up(batch=2, widths=[3, 3, 3], head=heads, repeats=1)
        assert plan.steps == (known[0],) * 3
        assert all(times[known[0]] == 1e3 for times in plan.milliseconds)

    def test_a_new_index_drops_the_plan(self, engine, heads):
        engine.warm_up(batch=1, widths=[3, 3, 3], head=heads, repeats=1)
        engine.replace(other_index())
        assert engine.plan is None

    @pytest.mark.parametrize(
        "text",
        ["", "{}", "[]", "[" * 100_000, '{"format": 99}', '{"format": 1, "backend": "torch"}'],
        ids=["empty", "object", "list", "deep", "format", "fields"],
    )
    def test_a_file_that_is_no_plan(self, tmp_path, text):
        path = tmp_path / "plan.json"
        path.write_text(text)
        with pytest.raises(bs.InputError, match="run warm_up and save again"):
            bs.Plan.load(path)

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"hidden_size": "16"}, "no whole number"),
            ({"start": "0"}, "no whole number"),
            ({"batch": None}, "no whole number"),
            ({"widths": [3, 3.5, 3]}, "no whole number"),
            ({"hidden_size": 0}, "too small"),
            ({"start": -1}, "too small"),
            ({"widths": [3, -3, 3]}, "too small"),
            ({"dtype": "float99"}, "unknown dtype"),
            ({"dtype": []}, "unknown dtype"),
            ({"steps": {"full": 1, "selective": 2, "fused": 3}}, "no list"),
            ({"milliseconds": "abc"}, "no list"),
            ({"milliseconds": [{"full": "1"}] * 3}, "no number"),
        ],
    )
    def test_a_plan_that_no_step_would_follow_is_refused(
        self, engine, heads, tmp_path, change, reason
    ):
        path = tmp_path / "plan.json"
        engine.warm_up(batch=1, widths=[3, 3, 3], head=heads, repeats=1).save(path)
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(bs.InputError, match=f"{reason}.*run warm_up and save again"):
            bs.Plan.load(path)

    def test_a_plan_of_the_reference_in_float64_is_read_again(self, index, heads, tmp_path):
        engine = bs.Engine(index, backend="reference")
        heads = [np.asarray(head, np.float64) for head in heads]
        plan = engine.warm_up(batch=1, widths=[3, 3, 3], head=heads, repeats=1)
        assert plan.dtype == "float64"
        plan.save(tmp_path / "plan.json")
        assert bs.Plan.load(tmp_path / "plan.json") == plan

    def test_a_plan_that_cannot_be_written(self, engine, heads, tmp_path):
        plan = engine.warm_up(batch=1, widths=[3, 3, 3], head=heads, repeats=1)
        for place in (tmp_path, tmp_path / "none" / "plan.json", None):
            with pytest.raises(bs.InputError, match="the plan cannot be written"):
                plan.save(place)

    def test_warm_up_wants_a_width_and_a_head_per_level(self, engine, heads):
        with pytest.raises(bs.InputError, match="give one per level"):
            engine.warm_up(batch=1, widths=[3, 3], head=heads)
        with pytest.raises(bs.InputError, match="give one per level"):
            engine.warm_up(batch=1, widths=[3, 3, 3], head=heads[:2])
