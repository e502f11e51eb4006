"""Who runs in the matrix: the backends, and the baselines that a cell admits."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

import beamsieve as bs
from beamsieve_bench.baselines import Mark, ScoreFirstTrie, Unconstrained
from beamsieve_bench.matrix_baselines import FlashrecTrie, NaiveSelective, PrefixFunction
from beamsieve_bench.matrix_cells import Cell
from beamsieve_bench.matrix_sources import Source
from beamsieve_bench.stage_search import DTYPES, Inputs

UNCONSTRAINED = "unconstrained"
SCORE_FIRST = "score-first CSR"
NAIVE = "naive selective"
PREFIX_FUNCTION = "prefix function"
FLASHREC = "flashrec trie"
BASELINES = (UNCONSTRAINED, SCORE_FIRST, NAIVE, PREFIX_FUNCTION, FLASHREC)

MOST_CALLS = {"cpu": 2048, "cuda": 128}
"""Beams per step above which nobody would call a Python function for each."""
MOST_GATHERED = {"cpu": 1 << 30, "cuda": 1 << 34}
"""Bytes of head rows above which the compact list is not tried."""
MOST_CELLS = 1 << 30
"""Pairs of first two tokens above which the score-first decode's dense table is not made."""
MOST_IN_DICTS = 250_000
"""Semantic IDs above which a trie of Python dicts is not built."""


@dataclass(frozen=True)
class Contestant:
    """One way to decode a cell.

    Attributes:
        name: the config string that opens the backend, or the baseline's name.
        asked: what was asked for.
        kind: "backend" or "baseline".
        run: one search, from fixed beams and inputs.
        phases: the same, telling each phase's end; a backend's are its two halves, with the whole
            step as "step".
        capturable: whether ``run`` can be captured in a CUDA graph.
        index_bytes: its tables on the device; None where it has none there.
        full: per step, whether the whole head is multiplied.
        note: what else a reader must know.
    """

    name: str
    asked: str
    kind: str
    run: Callable[[], Any]
    phases: Callable[[Mark], object]
    capturable: bool
    index_bytes: int | None
    full: tuple[bool, ...]
    note: str = ""


def draw_inputs(source: Source, cell: Cell, hidden: int, device: torch.device) -> Inputs:
    """Normal hidden states, and heads that give logits of deviation 1; the same for everyone."""
    draw = torch.Generator().manual_seed(0)
    dtype = DTYPES[cell.dtype]
    states, heads = [], []
    for step, vocabulary in enumerate(source.codebooks):
        places = cell.width if step else 1
        states.append(torch.randn(cell.batch, places, hidden, generator=draw))
        heads.append(torch.randn(vocabulary, hidden, generator=draw) / hidden**0.5)
    return Inputs(
        [one.to(device=device, dtype=dtype) for one in states],
        [one.to(device=device, dtype=dtype) for one in heads],
        [cell.width] * len(heads),
    )


def backend_contestant(
    asked: str,
    engine: bs.Engine,
    source: Source,
    cell: Cell,
    inputs: Inputs,
    requests: list[dict[str, Any]] | None = None,
) -> Contestant:
    """A backend on the plan that it warmed up to, its heads prepared as those that serve are.

    ``requests`` are in place of those of the cell's share.
    """
    heads = [engine.prepare_head(head) for head in inputs.heads]
    # On a processor a plan of the default seven repeats takes longer than all that is measured.
    repeats = 7 if inputs.heads[0].is_cuda else 3
    plan = engine.warm_up(cell.batch, inputs.widths, heads, repeats=repeats)
    begun = engine.begin(cell.batch, requests or source.requests(cell.share, cell.batch))
    opened = begun.search.backend
    assert opened is not None

    def run() -> bs.Beams:
        beams = begun
        for hidden, head, width in zip(inputs.hidden, heads, inputs.widths, strict=True):
            beams = engine.step(beams, width, hidden=hidden, head=head)
        return beams

    def phases(mark: Mark) -> None:
        beams = begun
        for hidden, plain, head, width in zip(
            inputs.hidden, inputs.heads, heads, inputs.widths, strict=True
        ):
            logits = hidden.float() @ plain.float().T
            mark("")
            engine.candidates(beams, logits=logits)
            mark("filter")
            found = engine.candidates(beams, hidden=hidden, head=head)
            mark("project")
            engine.select(beams, found, width)
            mark("select")
            del found
            beams = engine.step(beams, width, hidden=hidden, head=head)
            mark("step")

    return Contestant(
        name=engine.backend,
        asked=asked,
        kind="backend",
        run=run,
        phases=phases,
        capturable=engine.capabilities.graph,
        index_bytes=opened.device_bytes(begun.search.tables) or source.index.device_bytes,
        full=tuple(projection == "full" for projection in plan.steps),
        note="projections: " + ", ".join(plan.steps),
    )


class Baselines:
    """The baselines of one catalog, each built when it is first needed, or the reason why not."""

    def __init__(self, source: Source, device: torch.device, without: frozenset[str]) -> None:
        self.source, self.device, self.without = source, device, without
        self._built: dict[str, Any] = {}

    def no_score_first(self) -> str:
        """Why this catalog has no score-first decode; empty where it has."""
        codebooks = self.source.codebooks
        if not self.source.one_length or len(codebooks) < 2:
            return "made for semantic IDs of one length, of two levels at least"
        cells = codebooks[0] * codebooks[1]
        if cells > MOST_CELLS:
            return f"its dense table of two levels has {cells} cells, above {MOST_CELLS}"
        return ""

    def score_first(self) -> ScoreFirstTrie:
        """The masked score-first decode, without a limit of candidates per beam."""
        made: ScoreFirstTrie = self._made(
            SCORE_FIRST,
            lambda: ScoreFirstTrie(self.source.sids, self.source.codebooks, self.device),
        )
        return made

    def _made(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._built:
            self._built[name] = make()
        return self._built[name]

    def of(
        self, cell: Cell, inputs: Inputs, candidates: int
    ) -> tuple[list[Contestant], dict[str, str]]:
        """Those that run in this cell, and for the others the reason.

        Args:
            cell: the shape.
            inputs: what they decode.
            candidates: the most valid tokens over all beams of any step.
        """
        reasons = {name: self._why_not(name, cell, inputs, candidates) for name in BASELINES}
        running = [self._contestant(name, inputs) for name, why in reasons.items() if not why]
        return running, {name: why for name, why in reasons.items() if why}

    def _why_not(self, name: str, cell: Cell, inputs: Inputs, candidates: int) -> str:
        if name in self.without:
            return "left out by request"
        if not self.source.one_length or len(self.source.codebooks) < 2:
            return "made for semantic IDs of one length, of two levels at least"
        if name == SCORE_FIRST:
            return self.no_score_first()
        items = len(self.source.sids)
        most = MOST_CALLS[self.device.type]
        if name == PREFIX_FUNCTION and cell.batch * cell.width > most:
            return f"{cell.batch * cell.width} Python calls a step, above {most}"
        if name == NAIVE:
            size = candidates * inputs.heads[0].shape[1] * 4
            most = MOST_GATHERED[self.device.type]
            return f"its gathered head takes {size} bytes, above {most}" if size > most else ""
        if name == FLASHREC and items > MOST_IN_DICTS:
            return f"its trie is made of Python dicts: {items} is above {MOST_IN_DICTS}"
        if name == FLASHREC and importlib.util.find_spec("flashrec") is None:
            return "the package flashrec is not installed"
        return ""

    def _contestant(self, name: str, inputs: Inputs) -> Contestant:
        source, device = self.source, self.device
        makers: dict[str, Callable[[], Any]] = {
            UNCONSTRAINED: Unconstrained,
            SCORE_FIRST: self.score_first,
            NAIVE: lambda: NaiveSelective(source.sids, device),
            PREFIX_FUNCTION: lambda: PrefixFunction(source.index.children),
            FLASHREC: lambda: FlashrecTrie(source.sids, source.codebooks, device),
        }
        made = self._made(name, makers[name])
        decode = partial(made.decode, inputs.hidden, inputs.heads, inputs.widths)
        return Contestant(
            name=name,
            asked=name,
            kind="baseline",
            run=decode,
            phases=lambda mark: decode(mark=mark),
            capturable=name in (UNCONSTRAINED, SCORE_FIRST),
            index_bytes=None if name in (UNCONSTRAINED, PREFIX_FUNCTION) else made.nbytes,
            full=(name != NAIVE,) * len(inputs.heads),
            note="no filter: its results need not exist" if name == UNCONSTRAINED else "",
        )


def valid_tokens(engine: bs.Engine, inputs: Inputs) -> list[int]:
    """Per step, how many tokens may follow all the beams of a search, counted by the backend."""
    beams = engine.begin(len(inputs.hidden[0]))
    counts = []
    for hidden, head, width in zip(inputs.hidden, inputs.heads, inputs.widths, strict=True):
        found = engine.candidates(beams, hidden=hidden, head=head)
        counts.append(int((from_dlpack(found.rows) >= 0).sum()))
        del found
        beams = engine.step(beams, width, hidden=hidden, head=head)
    return counts
