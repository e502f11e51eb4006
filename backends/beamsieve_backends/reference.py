"""The specification behind a backend's interface: any size of correctness, no speed.

Each half of a step is the specification's own, in float64; only what crosses the interface is
rounded to float32. The index is turned back into the specification's trie of dicts, so this backend
shares no table, no row arithmetic and no selection with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

import beamsieve_spec as spec
from beamsieve.errors import BackendError, InputError
from beamsieve.index import Index
from beamsieve.interface import (
    Array,
    Backend,
    Beams,
    Candidates,
    Capabilities,
    Normalize,
    Search,
    StepInputs,
)
from beamsieve.targeting import StepMatchers
from beamsieve_backends.processor import processor_name
from beamsieve_spec.trie import SID

_DLPACK_CPU = 1


class ReferenceBackend(Backend):
    """``backend="reference"``: NumPy on the CPU."""

    name: ClassVar[str] = "reference"

    def __init__(self, device: str | None = None, options: Mapping[str, str] | None = None) -> None:
        if device not in (None, "cpu"):
            raise BackendError(f"The backend 'reference' runs on cpu alone, not on {device!r}.")
        if options:
            raise BackendError(f"The backend 'reference' has no option {next(iter(options))!r}.")
        self.device = "cpu"
        self.device_name = processor_name()

    @property
    def capabilities(self) -> Capabilities:
        """Everything that the specification says, at its own precision."""
        return Capabilities(
            dtypes=("float32", "float16", "float64"),
            projections=("full",),
            targeting=("bits", "bloom", "allow", "exclude"),
            tolerance={"float32": 1e-6, "float16": 1e-6, "float64": 1e-6},
        )

    def load(self, index: Index) -> spec.Trie:
        """The index as the specification's trie."""
        sids = index.sid_of_leaf(np.arange(index.leaf_count))
        codebooks = list(index.codebooks)
        if index.end_token:
            codebooks = [size - 1 for size in codebooks[:-1]]
        return spec.Trie(sids.tolist(), codebooks=codebooks, end_token=index.end_token)

    def begin(
        self,
        search: Search,
        tokens: NDArray[np.int32],
        rows: NDArray[np.int64],
        finished: NDArray[np.bool_],
    ) -> Beams:
        """One beam per request whose prefix is known."""
        known = rows[:, None] != -1
        zeros = np.where(known, np.float32(0), np.float32(-np.inf))
        return Beams(
            step=tokens.shape[1],
            tokens=np.where(known, tokens, -1).astype(np.int32)[:, None, :],
            scores=zeros,
            keys=zeros.copy(),
            rows=rows[:, None].copy(),
            parents=np.full(known.shape, -1, np.int64),
            finished=finished[:, None] & known,
            count=known[:, 0].astype(np.int64),
            search=search,
        )

    def candidates(self, beams: Beams, inputs: StepInputs, normalize: Normalize) -> Candidates:
        """``beamsieve_spec.candidates``, rounded to float32."""
        logits = inputs.logits
        if logits is None:
            logits = spec.project(inputs.hidden, inputs.head, inputs.bias)
        # An overflowing or meaningless number is data here: the specification says what it means.
        with np.errstate(all="ignore"):
            found = spec.candidates(
                beams.search.tables,
                _as_spec(beams),
                logits,
                normalize,
                inputs.bonus,
                _permits(beams.search),
            )
            scores = found.scores.astype(np.float32)
        return Candidates(found.tokens, scores, found.rows)

    def select(self, beams: Beams, candidates: Candidates, width: int, keys: Array | None) -> Beams:
        """``beamsieve_spec.select``."""
        before, scores = _as_spec(beams), candidates.scores.astype(np.float64)
        found = spec.Candidates(candidates.tokens, scores, candidates.rows, before)
        kept = spec.select(beams.search.tables, before, found, width, keys)
        return Beams(
            step=kept.step,
            tokens=kept.tokens,
            scores=kept.scores.astype(np.float32),
            keys=kept.keys.astype(np.float32),
            rows=kept.rows,
            parents=kept.parents,
            finished=kept.finished,
            count=kept.count,
            search=beams.search,
        )

    def add_nudge(self, candidates: Candidates, nudge: Array) -> Array:
        """``beamsieve_spec.add_nudge``."""
        # Tokens and scores are all that it reads, and they have the same names and shapes here.
        return spec.add_nudge(cast("spec.Candidates", candidates), nudge)

    def asarray(self, value: Any, *, what: str) -> NDArray[Any]:
        """Any array on the CPU, as NumPy, without a copy."""
        if isinstance(value, np.ndarray):
            return value
        if hasattr(value, "detach"):
            value = value.detach()
        if hasattr(value, "resolve_neg"):  # DLPack forgets that a sign is still to be turned
            value = value.resolve_neg()
        try:
            if hasattr(value, "__dlpack_device__"):
                if int(value.__dlpack_device__()[0]) == _DLPACK_CPU:
                    return np.from_dlpack(value)
                raise ValueError("it is on another device, and this engine runs on cpu")
            if hasattr(value, "__array_interface__"):
                return np.asarray(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            why = " ".join(str(error).split()).rstrip(".")
            raise InputError(f"{what} cannot be read as a NumPy array: {why}.") from error
        raise InputError(
            f"{what} is a {type(value).__name__}; give an array (NumPy, or anything with DLPack)."
        )

    def to_host(self, array: Array) -> NDArray[Any]:
        """The array itself."""
        return np.asarray(array)


def _permits(search: Search) -> Callable[[int, SID], bool] | None:
    """The tests of targeting, on the index's own matchers and the encoded requests."""
    asked = search.requests
    if asked is None:
        return None
    index, trie = search.index, search.tables
    matchers = None if index.matchers is None else index.matchers.steps

    def permits(b: int, prefix: SID) -> bool:
        first, behind = trie.leaf_interval[prefix]
        listed = asked.leaves[asked.leaf_starts[b] : asked.leaf_starts[b + 1]]
        inside = int(np.searchsorted(listed, behind) - np.searchsorted(listed, first))
        if asked.leaf_mode[b] == 1 and not inside:
            return False
        if asked.leaf_mode[b] == 2 and inside == behind - first:
            return False
        if matchers is None:
            return True
        step, entry = matchers[len(prefix) - 1], trie.row[prefix]
        parts = [entry]
        if step.part_starts is not None:
            parts = list(range(step.part_starts[entry], step.part_starts[entry + 1]))
        return any(passes(step, part, b) for part in parts)

    def passes(step: StepMatchers, part: int, b: int) -> bool:
        row = step.bits.rows[step.bits.index[part]]
        if ((row & asked.bits[b]) != asked.bits[b]).any():
            return False
        for table, signed, count in zip(step.blooms, asked.bloom, asked.bloom_count, strict=True):
            mine, row = signed[b, : count[b]], table.rows[table.index[part]]
            if len(mine) and not ((row & mine) == mine).all(axis=1).any():
                return False
        return True

    return permits


def _as_spec(beams: Beams) -> spec.Beams:
    return spec.Beams(
        beams.step,
        beams.tokens,
        beams.scores.astype(np.float64),
        beams.keys.astype(np.float64),
        beams.rows,
        beams.parents,
        beams.finished,
        beams.count,
    )
