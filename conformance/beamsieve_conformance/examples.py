"""A step in words, for the report of what went wrong in it; and what a wrong score looks like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import get_args

import numpy as np

import beamsieve_spec as spec
from beamsieve.interface import Normalize
from beamsieve_conformance import oracle
from beamsieve_conformance.compare import Candidates, HostBeams, allowed, shortened
from beamsieve_conformance.difference import Example
from beamsieve_conformance.oracle import Inputs
from beamsieve_spec.step import Permits

BEAMS = 3
"""How many beams of a step are shown."""


def of_step(
    trie: spec.Trie,
    before: HostBeams,
    width: int,
    inputs: Inputs,
    normalize: str,
    permits: Permits | None,
    b: int,
) -> Example:
    """The step of ``width`` that request ``b`` was about to take from ``before``."""
    sids = [",".join(map(str, sid)) for sid in trie.leaves]
    codebooks = " ".join(map(str, trie.codebooks))
    says = "logits" if inputs.logits is not None else "hidden states and a head"
    extra = [name for name in ("bias", "bonus", "nudge") if getattr(inputs, name) is not None]
    real = int(before.count[b])
    lines = [
        f"{len(sids)} semantic IDs, codebooks {codebooks}: {shortened(sids)}",
        f"step {before.step + 1} of {trie.length}, request {b} of {before.batch}: width {width}, "
        f"normalize={normalize!r}, {' + '.join([says, *extra])} in {inputs.dtype}",
        *(_beam(trie, before, inputs, permits, b, m) for m in range(min(real, BEAMS))),
    ]
    if not 0 < real <= BEAMS:
        lines.append(f"{'… ' if real else ''}{real or 'no'} beams in all")
    return Example((len(sids), real, width, before.step), lines)


def _beam(
    trie: spec.Trie, before: HostBeams, inputs: Inputs, permits: Permits | None, b: int, m: int
) -> str:
    """One beam with what may follow it, and the logits of that."""
    spelled = ",".join(map(str, before.tokens[b, m].tolist()))
    shown = f"beam {m} ({spelled}), score {before.scores[b, m]:.6g}"
    if before.finished[b, m]:
        return f"{shown}: finished"
    prefix = trie.prefixes[before.step][before.rows[b, m]]
    logits = inputs.all_logits()[b, m]
    tokens = [
        f"{v}: {logits[v]:.6g}"
        + ("" if permits is None or permits(b, (*prefix, v)) else " (targeting stops it)")
        for v in trie.children(prefix)
    ]
    return f"{shown}: tokens and logits {shortened(tokens, 6)}"


def mistaken(
    trie: spec.Trie,
    before: HostBeams,
    inputs: Inputs,
    normalize: Normalize,
    permits: Permits | None,
) -> Iterator[tuple[str, list[Candidates]]]:
    """What often stands in place of a step's right scores: in words, and its candidates."""
    for other in get_args(Normalize):
        if other != normalize:
            yield f"for normalize={other!r}", oracle.truth(trie, before, inputs, other, permits)
    for name, less in (
        ("bias", replace(inputs, bias=None)),
        ("bonus", replace(inputs, bonus=None)),
    ):
        if getattr(inputs, name) is not None:
            yield f"without the {name}", oracle.truth(trie, before, less, normalize, permits)
    for words, scores in (
        ("without the parent's score", np.zeros_like(before.scores)),
        ("with the score of the first beam for the parent's", before.scores[:, :1]),
    ):
        held = replace(before, scores=np.where(before.rows >= 0, scores, before.scores))
        yield words, oracle.truth(trie, held, inputs, normalize, permits)


def likeness(
    truths: Iterable[tuple[str, list[Candidates]]], after: HostBeams, b: int, tolerance: float
) -> str:
    """Which of ``truths`` all scores of request ``b`` agree with, in words; "" with none."""
    real = int(after.count[b])
    scores, parents = after.scores[b, :real].tolist(), after.parents[b, :real].tolist()
    tokens = after.tokens[b, :real, -1].tolist()
    for words, candidates in truths:
        if all(
            (true := candidates[b].get((parent, token))) is not None
            and abs(score - true.score) <= allowed(tolerance, true.score)
            for score, parent, token in zip(scores, parents, tokens, strict=True)
        ):
            return f"these scores are right {words}"
    return ""
