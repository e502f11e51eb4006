"""Random catalogs, widths, inputs and guidance, every step judged by the specification."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from beamsieve.interface import Capabilities, Normalize, Projection
from beamsieve_conformance import catalogs, features, model
from beamsieve_conformance.catalogs import CatalogShape
from beamsieve_conformance.oracle import Inputs
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Layout, Trial, World

CELLS = 300_000
"""How many logits [B, M, V] a random step may have; bounds the time, not what is covered."""


@dataclass(frozen=True)
class Case:
    """One random search."""

    catalog: CatalogShape
    layout: Layout | None
    normalize: Normalize
    batch: int
    widths: tuple[int, ...]
    dtype: str
    hidden: bool
    bias: bool
    projection: Projection | None
    kind: model.Kind
    bonus: bool
    nudge: bool
    prefix: int
    seed: int


@st.composite
def cases(draw: st.DrawFn, can: Capabilities, *, kind: model.Kind | None = None) -> Case:
    """Searches within what the backend declares."""
    catalog = draw(
        catalogs.shapes(
            largest=min(70_000, can.largest_codebook or 70_000) - 1, ragged=can.variable_length
        )
    )
    largest = min(400, can.largest_width or 400)
    width = st.one_of(st.integers(1, 5), st.integers(1, min(40, largest)), st.integers(1, largest))
    levels = len(catalog.codebooks) + int(catalog.end_token)
    is_small = catalog.count * max(catalog.codebooks) <= 100_000
    return Case(
        catalog=catalog,
        layout=draw(st.sampled_from((None, "dense", "sparse"))) if is_small else None,
        normalize=draw(st.sampled_from(can.normalizers)),
        batch=draw(st.integers(1, 4)),
        widths=tuple(draw(st.lists(width, min_size=levels, max_size=levels))),
        dtype=draw(st.sampled_from([d for d in can.dtypes if d in features.KNOWN["dtype"]])),
        hidden=draw(st.booleans()),
        bias=draw(st.booleans()),
        projection=draw(st.sampled_from((None, *can.projections))),
        kind=draw(st.sampled_from(model.KINDS)) if kind is None else kind,
        bonus="bonus" in can.guidance and draw(st.booleans()),
        nudge="nudge" in can.guidance and draw(st.booleans()),
        prefix=draw(st.integers(0, levels)) if draw(st.booleans()) else 0,
        seed=draw(st.integers(0, 2**16)),
    )


def start(trial: Trial, case: Case, rng: np.random.Generator) -> list[tuple[int, ...]] | None:
    """A prefix per request: known ones, and an unknown one now and then."""
    if not case.prefix:
        return None
    known = trial.trie.prefixes[case.prefix]
    if not known:
        return [(0,) * case.prefix] * case.batch
    picks = [known[int(rng.integers(len(known)))] for _ in range(case.batch)]
    if case.batch > 1 and rng.random() < 0.5:
        picks[-1] = tuple(int(rng.integers(size)) for size in trial.trie.codebooks[: case.prefix])
    return picks


def says(case: Case, shape: tuple[int, int, int], rng: np.random.Generator) -> Inputs:
    """The model's word on one step."""
    guidance = {
        name: model.given_guidance(rng, shape, case.kind)
        for name in ("bonus", "nudge")
        if getattr(case, name)
    }
    if case.hidden:
        return model.given_hidden(rng, shape, case.kind, case.dtype, case.bias, **guidance)
    return model.given_logits(rng, shape, case.kind, case.dtype, **guidance)


def check(subject: Subject, case: Case) -> None:
    """Search to the end, each step judged."""
    sids = case.catalog.sids()
    world = World.of(
        sids,
        case.catalog.codebooks,
        end_token=case.catalog.end_token,
        layout=case.layout,
    )
    trial = Trial(subject, world, case.normalize)
    rng = np.random.default_rng(case.seed)
    beams = trial.begin(case.batch, start(trial, case, rng))
    sizes = [*trial.trie.codebooks, 1]
    for width in case.widths[beams.step :]:
        room = CELLS // (case.batch * sizes[beams.step + 1])
        inputs = says(case, trial.shape(beams), rng)
        projection = case.projection if case.hidden else None
        beams = trial.step(beams, max(1, min(width, room)), inputs, projection)
    assert trial.host(beams).step == trial.trie.length
    trial.engine.results(beams, k=5)
    event("layout " + "/".join(sorted({table.layout for table in world.index.tables})))
    event(f"numbers {case.kind}")


@given(data=st.data())
def test_any_search_is_right(subject: Subject, data: st.DataObject) -> None:
    check(subject, data.draw(cases(subject.capabilities)))


@given(data=st.data())
def test_any_search_over_tied_numbers_is_right(subject: Subject, data: st.DataObject) -> None:
    check(subject, data.draw(cases(subject.capabilities, kind="tied")))


@given(data=st.data())
def test_any_search_with_accidents_is_right(subject: Subject, data: st.DataObject) -> None:
    check(subject, data.draw(cases(subject.capabilities, kind="spiked")))


@given(data=st.data())
def test_a_search_with_room_for_all_finds_all(subject: Subject, data: st.DataObject) -> None:
    can = subject.capabilities
    largest = min(600, can.largest_width or 600)
    shape = data.draw(
        catalogs.shapes(
            largest=min(1025, can.largest_codebook or 1025) - 1,
            ragged=can.variable_length,
            most=max(1, min(300, largest - 4)),
        )
    )
    world = World.of(shape.sids(), shape.codebooks, end_token=shape.end_token)
    trial = Trial(subject, world)
    beams = trial.begin()
    for _ in range(trial.trie.length):
        beams = trial.step(beams, largest, trial.logits(beams, 0.0))
    found = trial.host(beams)
    real = int(found.count[0])
    assert sorted(found.rows[0, :real].tolist()) == list(range(len(trial.trie.leaves)))
    hits = trial.engine.results(beams, k=10_000)[0]
    assert len(hits) == len(shape.sids())
