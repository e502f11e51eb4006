"""One engine of the backend under test, on one catalog, beside the specification."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

import beamsieve_spec as spec
from beamsieve.catalog import Catalog
from beamsieve.engine import Score
from beamsieve.index import Index
from beamsieve.interface import Beams, Candidates, Normalize, Projection, StepInputs
from beamsieve.targeting import Attribute
from beamsieve_conformance import compare, examples, oracle
from beamsieve_conformance.arrays import round_to
from beamsieve_conformance.compare import HostBeams
from beamsieve_conformance.difference import DifferenceError, Example, attach
from beamsieve_conformance.oracle import Inputs
from beamsieve_conformance.subject import Subject
from beamsieve_spec.step import Permits
from beamsieve_spec.targeting_matchers import Targeting
from beamsieve_spec.targeting_rules import Attribute as SpecAttribute
from beamsieve_spec.targeting_rules import rules_by_item

Layout = Literal["dense", "sparse"]
SID = Sequence[int]


@dataclass(frozen=True)
class World:
    """A catalog twice: as an index, and as the specification's trie and targeting."""

    index: Index
    trie: spec.Trie
    targeting: Targeting

    @classmethod
    def of(
        cls,
        sids: Sequence[SID],
        codebooks: Sequence[int] | int | None = None,
        *,
        items: Sequence[Hashable] | None = None,
        end_token: bool = False,
        layout: Layout | None = None,
        attributes: Sequence[Mapping[str, Any]] = (),
        rules: Sequence[Mapping[str, Any] | None] | None = None,
        static: Sequence[int] | None = None,
        dynamic: tuple[float, int] | None = None,
    ) -> World:
        """The catalog of these rows. One number for ``codebooks`` is every level's size.

        Targeting is ``attributes`` in their JSON form, ``rules`` with one dict per row, and the
        parts into which matchers are divided.
        """
        levels = max(len(sid) for sid in sids)
        sizes = [codebooks] * levels if isinstance(codebooks, int) else codebooks
        mine = [{}] * len(sids) if rules is None else list(rules)
        targeted: dict[str, Any] = {}
        if attributes:
            targeted = {"attributes": [Attribute(**given) for given in attributes], "rules": mine}
        catalog = Catalog.from_arrays(
            [list(sid) for sid in sids],
            items=items,
            codebooks=sizes,
            end_token=end_token,
            **targeted,
        )
        trie = spec.Trie(sids, items=items, codebooks=sizes, end_token=end_token)
        names = list(range(len(sids))) if items is None else items
        declared = [SpecAttribute(**given) for given in attributes]
        return cls(
            Index.build(catalog, layout=layout, static=static, dynamic=dynamic),
            trie,
            Targeting(
                trie,
                declared,
                rules_by_item(declared, names, mine),
                static,
                dynamic,
            ),
        )


class Trial:
    """A search in lockstep: the backend takes each step, and the specification judges it."""

    def __init__(self, subject: Subject, world: World, normalize: Normalize = "catalog") -> None:
        subject.require(codebook=max(world.trie.codebooks))
        self.subject = subject
        self.world = world
        self.trie = world.trie
        self.permits: Permits | None = None
        self.requests: Sequence[Mapping[str, Any] | None] = ()
        self.normalize: Normalize = normalize
        self.engine = subject.engine(world.index, normalize)

    def begin(
        self,
        batch: int = 1,
        prefix: Sequence[SID] | None = None,
        requests: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> Beams:
        """The beams before the first step; later steps are judged by these requests' targeting."""
        batch = batch if requests is None else len(requests)
        self.permits = None if requests is None else self.world.targeting.permits(requests)
        self.requests = requests or ()
        return self.engine.begin(batch=batch, prefix=prefix, requests=requests)

    def host(self, beams: Beams) -> HostBeams:
        """The beams as NumPy arrays of their own memory."""
        return self.subject.host(beams)

    def shape(self, beams: Beams) -> tuple[int, int, int]:
        """[B, M, V] of the step that follows ``beams``."""
        batch, places = beams.scores.shape
        return int(batch), int(places), self.trie.codebooks[beams.step]

    def logits(self, beams: Beams, values: Any, dtype: str = "float32", **guidance: Any) -> Inputs:
        """Logits for the next step, from values that broadcast to [B, M, V]."""
        shape = self.shape(beams)
        spread = {
            name: np.broadcast_to(np.asarray(value, np.float32), shape)
            for name, value in guidance.items()
        }
        full = np.broadcast_to(np.asarray(values, np.float32), shape)
        return Inputs(logits=round_to(full, dtype), dtype=dtype, **spread)

    def step(
        self, beams: Beams, width: int, inputs: Inputs, projection: Projection | None = None
    ) -> Beams:
        """One step, which must be what the specification makes of the same beams."""
        before = self.host(beams)
        try:
            after = self.take(beams, width, inputs, projection)
        except Exception as error:
            attach(error, partial(self._example, before, width, inputs))
            raise
        self.judge(before, after, width, inputs)
        return after

    def take(
        self, beams: Beams, width: int, inputs: Inputs, projection: Projection | None = None
    ) -> Beams:
        """One step, not judged. With ``projection`` the backend is told which one to use, as an
        engine with a plan would."""
        arguments = self.subject.arguments(inputs)
        if projection is None:
            return self.call(beams, width, arguments)
        self.subject.require(width=width)
        backend = self.subject.backend
        arrays = {name: backend.asarray(value, what=name) for name, value in arguments.items()}
        told = StepInputs(width, projection=projection, **arrays)
        return backend.step(beams, told, self.normalize)

    def call(self, beams: Beams, width: int, arguments: dict[str, Any]) -> Beams:
        """``engine.step`` with arrays that are on the device already."""
        self.subject.require(width=width)
        return self.engine.step(beams, width, **arguments)

    def select(self, beams: Beams, found: Candidates, width: int, key: Any = None) -> Beams:
        """``engine.select``: the second half of a step."""
        self.subject.require(width=width)
        return self.engine.select(beams, found, width, key)

    def search(self, score: Score, widths: Sequence[int], batch: int = 1) -> Beams:
        """``engine.search``: all steps."""
        self.subject.require(width=max(widths))
        return self.engine.search(score, list(widths), batch)

    def judge(self, before: HostBeams, after: Beams, width: int, inputs: Inputs) -> None:
        """Compare a step that was taken from ``before``."""
        held = self.host(after)
        tolerance = self.subject.capabilities.tolerance[inputs.dtype]
        truth = oracle.truth(self.trie, before, inputs, self.normalize, self.permits)
        try:
            compare.check_step(before, held, truth, width=width, tolerance=tolerance)
        except DifferenceError as error:
            attach(error, partial(self._example, before, width, inputs, held, error))
            raise

    def _example(
        self,
        before: HostBeams,
        width: int,
        inputs: Inputs,
        after: HostBeams | None = None,
        error: DifferenceError | None = None,
    ) -> Example:
        request = 0 if error is None else error.request or 0
        shown = examples.of_step(
            self.trie, before, width, inputs, self.normalize, self.permits, request
        )
        if self.requests:
            asks = f"targeting: the request is {self.requests[request]}"
            shown = replace(shown, lines=[*shown.lines, asks])
        if after is None or error is None or error.rule != "scores":
            return shown
        tolerance = self.subject.capabilities.tolerance[inputs.dtype]
        truths = examples.mistaken(self.trie, before, inputs, self.normalize, self.permits)
        return replace(shown, hint=examples.likeness(truths, after, request, tolerance))

    def walk(self, widths: Sequence[int], values: Any = 0.0, batch: int = 1) -> Beams:
        """Steps from the root, each judged, with the same logits everywhere (or broadcast)."""
        beams = self.begin(batch)
        for width in widths:
            beams = self.step(beams, width, self.logits(beams, values))
        return beams
