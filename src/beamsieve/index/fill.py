"""From the plain parts of step tables to the tables in their layouts, all parts in parallel.

The sizes of everything are known first; then threads write into the final arrays, side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.index.encode import (
    bit_words,
    fill_bits,
    kind_bytes,
    sampled_places,
    start_candidates,
)
from beamsieve.index.layouts import dense_bitmap, dense_ranks
from beamsieve.index.levels import Level
from beamsieve.index.starts import BLOCKS, SPAN, WORD, RowStarts, starts_dtype
from beamsieve.index.tables import (
    GROUP,
    Layout,
    StepTable,
    best_layout,
    rank_dtype,
    token_candidates,
)
from beamsieve.index.tokens import pack_tokens, packed_words, token_bits

_CHUNK = 1 << 18
_DENSE_CELLS = 1 << 20


def make_tables(
    levels: Sequence[Level],
    layouts: Sequence[Layout | None],
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[StepTable, ...]:
    """Every table, each of its parts in the form of fewest bytes.

    Args:
        levels: the tables' plain parts.
        layouts: forces a table's layout; None takes the smaller one.
        threads: how many to use; the tables are the same with any number.
        progress: called with how much is done, and how much there is.
    """
    scans = _scan(levels, threads)
    tables: list[StepTable] = []
    jobs: list[parallel.Job] = []
    later: list[parallel.Job] = []
    for step, (level, layout) in enumerate(zip(levels, layouts, strict=True), 1):
        starts, filling = _starts(level, scans[step - 1])
        rows, entries = starts.rows, starts.entries
        dense = (layout or best_layout(rows, entries, level.vocabulary)) == "dense"
        table = _dense if dense else _sparse
        made, more = table(step, level, starts, scans[step - 1].widest, threads)
        tables.append(made)
        jobs += filling
        later += more
    jobs += later  # row starts first: among them are the longest jobs
    parallel.run(lambda job: job(), jobs, threads, progress)
    return tuple(tables)


@dataclass
class _Scan:
    """What a table's row starts are like: its widest row, z, and the exceptions of every K."""

    widest: int = 0
    gap: int = 0
    exceptional: dict[int, int] = field(default_factory=lambda: dict.fromkeys(BLOCKS, 0))

    def add(self, starts: NDArray[np.integer], following: NDArray[np.integer]) -> None:
        """Look at some rows; ``following`` are the starts from the second row on."""
        counts = following - starts[: len(following)]
        if len(counts):
            self.widest = max(self.widest, int(counts.max()))
            self.gap |= int(counts.min()) == 0
        for block in reversed(BLOCKS):
            first, last = starts[::block], starts[block - 1 :: block]
            spans = last - first[: len(last)]
            found = int(np.count_nonzero(spans >= SPAN))
            if len(last) < len(first):
                found += int(starts[-1] - first[-1] >= SPAN)
            if not found:  # what is within such a block lies closer still
                break
            self.exceptional[block] += found


def _scan(levels: Sequence[Level], threads: int | None) -> list[_Scan]:
    tasks = [
        (number, *piece)
        for number, level in enumerate(levels)
        for piece in parallel.pieces(len(level.row_starts), _CHUNK)
    ]

    def look(task: tuple[int, int, int]) -> _Scan:
        number, start, stop = task
        starts, found = levels[number].row_starts, _Scan()
        for first, last in parallel.blocks(start, stop):
            found.add(starts[first:last], starts[first + 1 : last + 1])
        return found

    scans = [_Scan() for _ in levels]
    for (number, _, _), found in zip(tasks, parallel.run(look, tasks, threads), strict=True):
        whole = scans[number]
        whole.widest = max(whole.widest, found.widest)
        whole.gap |= found.gap
        for block in BLOCKS:
            whole.exceptional[block] += found.exceptional[block]
    return scans


def _starts(level: Level, scan: _Scan) -> tuple[RowStarts, list[parallel.Job]]:
    """The row starts in the kind of fewest bytes, and what fills them."""
    rows, entries, gap = len(level.row_starts) - 1, level.entries, scan.gap
    if gap:  # the rows' places are no longer their starts
        candidates = start_candidates(level.row_starts)
    else:
        candidates = kind_bytes(rows, entries, gap, scan.exceptional)
    kind = min(candidates, key=candidates.__getitem__)
    if kind == "identity":
        return RowStarts(rows, entries, candidates=candidates), []
    if kind == "plain":
        return RowStarts(rows, entries, level.row_starts, candidates=candidates), []
    block = int(kind.removeprefix("sampled/"))
    bits = np.zeros(bit_words(rows, entries, gap), np.uint64)
    jobs: list[parallel.Job] = []
    if gap:
        samples, exceptions = sampled_places(level.row_starts, block, gap)
    else:
        dtype = starts_dtype(entries)
        samples = np.empty(-(-(rows + 1) // block), dtype)
        exceptions = np.empty(scan.exceptional[block] * block, dtype)
        jobs.append(partial(_fill_samples, level.row_starts, block, samples, exceptions))
    jobs += [
        partial(_fill_bits, level.row_starts, gap, bits, *piece)
        for piece in parallel.pieces(len(bits), _CHUNK // WORD)
    ]
    starts = RowStarts(
        rows,
        entries,
        bits=bits,
        samples=samples,
        exceptions=exceptions,
        block=block,
        gap=gap,
        candidates=candidates,
    )
    return starts, jobs


def _fill_samples(
    starts: NDArray[np.integer],
    block: int,
    samples: NDArray[np.signedinteger],
    exceptions: NDArray[np.signedinteger],
) -> None:
    samples[:], exceptions[:] = sampled_places(starts, block, 0)


def _fill_bits(
    starts: NDArray[np.integer], gap: int, bits: NDArray[np.uint64], first: int, last: int
) -> None:
    for begin, end in parallel.blocks(first, last, parallel.block_rows() // WORD):
        fill_bits(starts, gap, bits, begin, end)


def _sparse(
    step: int, level: Level, starts: RowStarts, widest: int, threads: int | None
) -> tuple[StepTable, list[parallel.Job]]:
    entries, tokens = level.entries, level.tokens
    if "packed" not in token_candidates(starts.rows, entries, level.vocabulary):
        return StepTable(step, level.vocabulary, starts, tokens=tokens, widest=widest), []
    bits = token_bits(level.vocabulary)
    packed = np.zeros(packed_words(entries, bits), np.uint32)
    jobs: list[parallel.Job] = [
        partial(pack_tokens, tokens[first:last], bits, packed, first)
        for first, last in parallel.shares(entries, 2 * _CHUNK, threads, WORD)
    ]
    return StepTable(step, level.vocabulary, starts, packed=packed, widest=widest), jobs


def _dense(
    step: int, level: Level, starts: RowStarts, widest: int, threads: int | None
) -> tuple[StepTable, list[parallel.Job]]:
    words, tokens = -(-level.vocabulary // WORD), level.tokens
    bitmap = np.empty((starts.rows, words), np.uint64)
    ranks = np.empty((starts.rows, -(-words // GROUP)), rank_dtype(level.vocabulary))

    def fill(first: int, last: int) -> None:
        bounds = level.row_starts[first : last + 1]
        bitmap[first:last] = dense_bitmap(level.vocabulary, bounds, tokens[bounds[0] : bounds[-1]])
        ranks[first:last] = dense_ranks(level.vocabulary, bitmap[first:last])

    jobs: list[parallel.Job] = [
        partial(fill, *piece)
        for piece in parallel.shares(starts.rows, max(1, _DENSE_CELLS // level.vocabulary), threads)
    ]
    table = StepTable(step, level.vocabulary, starts, bitmap=bitmap, ranks=ranks, widest=widest)
    return table, jobs
