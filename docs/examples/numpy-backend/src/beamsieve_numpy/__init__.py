"""A beamsieve backend in plain NumPy: short, correct, and not fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import BackendError, InputError
from beamsieve.interface import (
    Backend,
    Beams,
    Candidates,
    Capabilities,
    Normalize,
    RequestFilters,
    Search,
    StepInputs,
)

if TYPE_CHECKING:
    from beamsieve.index import Index, StepTable
    from beamsieve.targeting import RowTable, StepMatchers


@dataclass(frozen=True)
class Table:
    """One step's table as this backend likes it. Entries are the children of all rows, in order.

    Attributes:
        row_starts: int64 [rows + 2]; row r owns the entries ``row_starts[r] : row_starts[r + 1]``.
            The last row is empty, so that row 0 exists even where no prefix is so long.
        tokens: int32 [entries + 1]; the last one is never valid, so that entry 0 always exists.
        leaves: int64 [entries + 1]; the leaf of an entry that completes a semantic ID, else -1.
        widest: the most entries of any row.
        first_leaf, end_leaf: int64 [entries]; an entry leads to the leaves between them.
        matchers: the targeting rules below each entry; None where the catalog has none.
    """

    row_starts: NDArray[np.int64]
    tokens: NDArray[np.int32]
    leaves: NDArray[np.int64]
    widest: int
    first_leaf: NDArray[np.int64]
    end_leaf: NDArray[np.int64]
    matchers: StepMatchers | None


class NumpyBackend(Backend):
    """The step in padded slots: slot s of a beam is the s-th token that may follow it."""

    name = "numpy"
    requires = "pip install beamsieve-numpy"

    def __init__(self, device: str | None = None, options: Mapping[str, str] | None = None) -> None:
        if device not in (None, "cpu"):
            raise BackendError(f"The numpy backend runs on cpu, not on {device}.")
        if options:
            raise BackendError(f"The numpy backend has no option {', '.join(options)}.")
        self.device = "cpu"

    @property
    def capabilities(self) -> Capabilities:
        """What the engine may ask for; the rest it refuses."""
        return Capabilities(
            dtypes=("float32", "float16"),
            targeting=("bits", "bloom", "allow", "exclude"),
            tolerance={"float32": 1e-6, "float16": 1e-6},
        )

    def load(self, index: Index) -> list[Table]:
        """One table per step, in the form that ``candidates`` and ``select`` like."""
        tables = []
        for depth, table in enumerate(index.tables, start=1):
            leaves = index.leaf_starts(depth)[:-1].copy()
            if depth < index.length:  # a row of the next table with entries is not complete
                leaves[np.diff(index.tables[depth].plain_starts()) > 0] = -1
            tables.append(
                Table(
                    row_starts=np.append(table.plain_starts(), table.entries).astype(np.int64),
                    tokens=np.append(entry_tokens(table), np.int32(0)),
                    leaves=np.append(leaves, -1),
                    widest=max(1, table.widest),
                    first_leaf=index.leaf_starts(depth)[:-1],
                    end_leaf=index.leaf_ends(depth),
                    matchers=index.matchers.steps[depth - 1] if index.matchers else None,
                )
            )
        return tables

    def begin(
        self,
        search: Search,
        tokens: NDArray[np.int32],
        rows: NDArray[np.int64],
        finished: NDArray[np.bool_],
    ) -> Beams:
        """One beam per request, at the root or at its prefix; none where the prefix is unknown."""
        known = (rows >= 0)[:, None]
        scores = np.where(known, np.float32(0), np.float32(-np.inf))
        return Beams(
            step=tokens.shape[1],
            tokens=np.where(known, tokens, np.int32(-1))[:, None, :],
            scores=scores,
            keys=scores,
            rows=rows[:, None],
            parents=np.full(known.shape, -1, np.int64),
            finished=finished[:, None],
            count=known.sum(axis=1),
            search=search,
        )

    @np.errstate(invalid="ignore")  # inf - inf is NaN, and NaN dies
    def candidates(self, beams: Beams, inputs: StepInputs, normalize: Normalize) -> Candidates:
        """Every token that may follow each beam, in its slot, with its score."""
        table: Table = beams.search.tables[beams.step]

        # Filter: which tokens may follow each beam's row.
        live = (beams.rows >= 0) & ~beams.finished
        row = np.where(live, beams.rows, 0)
        first, end = table.row_starts[row], table.row_starts[row + 1]
        slot = np.arange(
            table.widest
        )  # not the widest row of this batch: sums must not depend on it
        valid = live[..., None] & (slot < (end - first)[..., None])
        entry = np.where(valid, first[..., None] + slot, 0)
        token = table.tokens[entry]
        requests = beams.search.requests
        kept = valid if requests is None else valid & keeps(requests, table, entry)

        # Score: log-probabilities of those tokens alone.
        logits = usable(all_logits(inputs))
        found = np.where(valid, np.take_along_axis(logits, token, axis=2), -np.inf)
        if normalize == "all":
            mass = logits
        else:
            mass = found if normalize == "catalog" else np.where(kept, found, -np.inf)
        scores = beams.scores[..., None] + log_softmax(found, mass)
        if inputs.bonus is not None:
            scores = scores + np.take_along_axis(inputs.bonus, token, axis=2)
        scores = np.where(kept & np.isfinite(scores), scores, -np.inf).astype(np.float32)
        token = np.where(kept, token, -1)
        entry = np.where(kept, entry, -1)

        # A finished beam is its own only candidate.
        scores[..., 0] = np.where(beams.finished, beams.scores, scores[..., 0])
        entry[..., 0] = np.where(beams.finished, beams.rows, entry[..., 0])
        return Candidates(tokens=token, scores=scores, rows=entry)

    def select(
        self,
        beams: Beams,
        candidates: Candidates,
        width: int,
        keys: NDArray[np.float32] | None,
    ) -> Beams:
        """The best of each request: higher key, then lower parent, then lower token."""
        table: Table = beams.search.tables[beams.step]
        batch, places, slots = candidates.rows.shape
        ranking = candidates.scores if keys is None else keys
        alive = (candidates.rows >= 0) & np.isfinite(candidates.scores) & np.isfinite(ranking)

        # A stable sort keeps equal keys in the order of the slots: lower parent, then lower token.
        flat = np.where(alive, ranking, -np.inf).reshape(batch, places * slots)
        place = np.argsort(-flat, axis=1, kind="stable")[:, :width]
        place = np.pad(place, ((0, 0), (0, width - place.shape[1])))
        count = np.minimum(alive.sum(axis=(1, 2)), width)
        kept = np.arange(width) < count[:, None]

        def gather(values: NDArray[Any]) -> NDArray[Any]:
            return np.take_along_axis(values.reshape(batch, places * slots), place, axis=1)

        parent = place // slots
        row, token = gather(candidates.rows), gather(candidates.tokens)
        was_finished = np.take_along_axis(beams.finished, parent, axis=1)
        leaf = table.leaves[np.where(kept & ~was_finished, row, -1)]
        history = np.take_along_axis(beams.tokens, parent[..., None], axis=1)
        tokens = np.concatenate([history, token[..., None]], axis=2)
        return Beams(
            step=beams.step + 1,
            tokens=np.where(kept[..., None], tokens, np.int32(-1)),
            scores=np.where(kept, gather(candidates.scores), np.float32(-np.inf)),
            keys=np.where(kept, gather(ranking), np.float32(-np.inf)),
            rows=np.where(kept, np.where(leaf >= 0, leaf, row), -1),
            parents=np.where(kept, parent, -1),
            finished=kept & (was_finished | (leaf >= 0)),
            count=count,
            search=beams.search,
        )

    @np.errstate(invalid="ignore")
    def add_nudge(self, candidates: Candidates, nudge: NDArray[np.float32]) -> NDArray[np.float32]:
        """Keys of this step alone: the scores plus what the nudge says of each token."""
        has_token = candidates.tokens >= 0
        added = np.take_along_axis(nudge, np.where(has_token, candidates.tokens, 0), axis=2)
        keys: NDArray[np.float32] = np.where(
            has_token, candidates.scores + added, candidates.scores
        )
        return keys

    def asarray(self, value: Any, *, what: str) -> NDArray[Any]:
        """NumPy's view of anything in host memory."""
        try:
            if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
                return np.from_dlpack(value)
            array = np.asarray(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"{what} is no array in this machine's memory: {error}") from error
        if array.dtype.kind not in "fiub":
            raise InputError(f"{what} is no array of numbers: {type(value).__name__}.")
        return array

    def to_host(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array itself: it is on the host."""
        return array

    def device_bytes(self, tables: list[Table]) -> int:
        """Bytes of all tables."""
        return sum(t.row_starts.nbytes + t.tokens.nbytes + t.leaves.nbytes for t in tables)


def entry_tokens(table: StepTable) -> NDArray[np.int32]:
    """The token of every entry of a table, ascending within a row, from either layout."""
    if table.bitmap is None:
        return table.plain_tokens().astype(np.int32)
    words = np.ascontiguousarray(table.bitmap)
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
    return np.nonzero(bits)[1].astype(np.int32)


def all_logits(inputs: StepInputs) -> NDArray[np.float64]:
    """Logits [B, M, V], given or multiplied out."""
    if inputs.logits is not None:
        return np.asarray(inputs.logits, np.float64)
    assert inputs.hidden is not None
    assert inputs.head is not None
    logits: NDArray[np.float64] = (
        inputs.hidden.astype(np.float64) @ inputs.head.astype(np.float64).T
    )
    return logits if inputs.bias is None else logits + inputs.bias


def usable(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """NaN and +inf count as -inf: they kill their own token and touch no other."""
    return np.where(np.isnan(logits) | (logits == np.inf), -np.inf, logits)


def log_softmax(logits: NDArray[np.float64], mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """``logits`` minus the logarithm of the sum of exp(``mass``), along the last axis."""
    largest = mass.max(axis=-1, keepdims=True)
    largest = np.where(largest == -np.inf, 0.0, largest)
    total = np.exp(mass - largest).sum(axis=-1, keepdims=True)
    total[total == 0] = np.inf  # nothing has mass: everything dies
    result: NDArray[np.float64] = logits - largest - np.log(total)
    return result


def keeps(requests: RequestFilters, table: Table, entry: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool [B, M, S]: whether something that its request may see can lie below each entry."""
    if not len(table.first_leaf):
        return np.zeros(entry.shape, np.bool_)
    return passes(requests, table.matchers, entry) & permitted(requests, table, entry)


def passes(
    requests: RequestFilters, matchers: StepMatchers | None, entry: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether one part of the entry's matcher holds all bits and one value of each Bloom filter."""
    passed = np.full(entry.shape, matchers is None)
    if matchers is None:
        return passed
    starts = matchers.part_starts
    first = entry if starts is None else starts[entry]
    parts = np.ones_like(entry) if starts is None else starts[entry + 1] - first
    for part in range(int(parts.max())):
        row = np.where(part < parts, first + part, first)
        holds = contains(matchers.bits, row, requests.bits)
        for rows, values, count in zip(
            matchers.blooms, requests.bloom, requests.bloom_count, strict=True
        ):
            one = np.broadcast_to((count == 0)[:, None, None], entry.shape)
            for n in range(values.shape[1]):
                one = one | ((n < count)[:, None, None] & contains(rows, row, values[:, n]))
            holds &= one
        passed |= holds
    return passed


def contains(
    rows: RowTable, row: NDArray[np.integer], asked: NDArray[np.uint64]
) -> NDArray[np.bool_]:
    """Whether each row [B, M, S] has all the bits that its request asks for [B, words]."""
    wanted = asked[:, None, None, :]
    holds = (rows.rows[rows.index[row]] & wanted) == wanted
    every_word: NDArray[np.bool_] = np.logical_and.reduce(holds, axis=-1)
    return every_word


def permitted(
    requests: RequestFilters, table: Table, entry: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether a leaf that ``allow`` and ``exclude`` leave lies in the entry's interval."""
    found = np.ones(entry.shape, np.bool_)
    for b, mode in enumerate(requests.leaf_mode.tolist()):
        listed = requests.leaves[requests.leaf_starts[b] : requests.leaf_starts[b + 1]]
        first, end = table.first_leaf[entry[b]], table.end_leaf[entry[b]]
        inside = np.searchsorted(listed, end) - np.searchsorted(listed, first)
        if mode == 1:  # only the listed ones
            found[b] = inside > 0
        elif mode == 2:  # all but the listed ones
            found[b] = inside < end - first
    return found
