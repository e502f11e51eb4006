"""The specification's word on one step, asked from the beams that a backend holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import beamsieve_spec as spec
from beamsieve.interface import Normalize
from beamsieve_conformance.compare import Candidates, HostBeams, Truth

Floats = NDArray[Any]


@dataclass(frozen=True)
class Inputs:
    """What a model says about one step, as the numbers that the backend is given too.

    Exactly one of ``logits`` [B, M, V] and ``hidden`` [B, M, d] with ``head`` [V, d] is set; shapes
    and meaning are those of ``beamsieve.interface.StepInputs``. ``dtype`` names what the backend
    receives; the numbers here are already rounded to it.
    """

    logits: Floats | None = None
    hidden: Floats | None = None
    head: Floats | None = None
    bias: Floats | None = None
    bonus: Floats | None = None
    nudge: Floats | None = None
    dtype: str = "float32"

    def all_logits(self) -> NDArray[np.float64]:
        """Logits [B, M, V] in float64, multiplied out where they are not given."""
        if self.logits is not None:
            return np.asarray(self.logits, np.float64)
        return spec.project(self.hidden, self.head, self.bias)


def spec_beams(beams: HostBeams) -> spec.Beams:
    """The backend's beams as the specification's."""
    return spec.Beams(
        step=beams.step,
        tokens=beams.tokens,
        scores=beams.scores.astype(np.float64),
        keys=beams.keys.astype(np.float64),
        rows=beams.rows,
        parents=beams.parents,
        finished=beams.finished,
        count=beams.count,
    )


def slots(
    trie: spec.Trie,
    beams: HostBeams,
    inputs: Inputs,
    normalize: Normalize,
    permits: Any = None,
) -> spec.Candidates:
    """The first half of a step: every candidate in its slot, as the specification scores it."""
    return spec.candidates(
        trie,
        spec_beams(beams),
        inputs.all_logits(),
        normalize,
        None if inputs.bonus is None else np.asarray(inputs.bonus, np.float64),
        permits,
    )


def truth(
    trie: spec.Trie,
    beams: HostBeams,
    inputs: Inputs,
    normalize: Normalize,
    permits: Any = None,
) -> list[Candidates]:
    """Per request, every candidate of the next step that is alive."""
    found = slots(trie, beams, inputs, normalize, permits)
    keys = found.scores if inputs.nudge is None else spec.add_nudge(found, inputs.nudge)
    return alive(trie, beams, found, keys)


def alive(
    trie: spec.Trie, beams: HostBeams, found: spec.Candidates, keys: NDArray[np.float64]
) -> list[Candidates]:
    """The candidates whose score and key are finite, by (parent, token), with the row they lead to.

    A candidate's slot names the row of its child; a child that is a whole semantic ID has a leaf in
    place of a row.
    """
    requests: list[dict[tuple[int, int], Truth]] = [{} for _ in range(beams.batch)]
    good = (found.rows != -1) & np.isfinite(found.scores) & np.isfinite(keys)
    for b, m, slot in np.argwhere(good).tolist():
        token, row = int(found.tokens[b, m, slot]), int(found.rows[b, m, slot])
        finished = token == -1
        if not finished:
            prefix = trie.prefixes[beams.step + 1][row]
            finished = prefix in trie.leaf
            row = trie.leaf[prefix] if finished else row
        requests[b][m, token] = Truth(
            float(found.scores[b, m, slot]), float(keys[b, m, slot]), row, finished
        )
    return list(requests)
