"""A step in compiled loops: what is handed to them, and what they write.

Only the head rows of valid tokens are multiplied, as the selective projection does, and everything
after the product is done while the logits are in the cache. So it needs hidden states or logits on
the CPU and plain tables. Its results follow from a request alone, however many threads share the
work: each beam's logits and sums are one thread's, and so is each request's choice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamsieve.interface import Beams, Candidates, StepInputs
from beamsieve_backends.torch_dense.compiled import choice, logits
from beamsieve_backends.torch_dense.compiled.threads import shared
from beamsieve_backends.torch_dense.entry_tokens import PlainTokens
from beamsieve_backends.torch_dense.row_starts import PlainStarts
from beamsieve_backends.torch_dense.selection import ended
from beamsieve_backends.torch_dense.tables import DeviceTable
from beamsieve_backends.torch_dense.targeting import kept_slots
from beamsieve_backends.torch_dense.tiles import expand

_HEAD_BYTES = 1 << 19
"""So much of the head is multiplied at a time: half of a small second-level cache."""
_WORTH_SHARING = 1 << 19
"""Numbers of head rows and hidden states that are worth waking one more thread for, which takes up
to a tenth of a millisecond."""
_NUMBERS_OF_A_LOGIT = 8
"""A logit that is given is as much work as so many of these."""
_REQUESTS_EACH = 4
"""With so many requests for each thread, it does all of its own; else beams are shared, and then
requests."""
_LARGEST_ROOM = 1 << 24
"""So many logits at most stay with a thread for its next step: 64 MiB."""
_rooms = threading.local()
_NO_FLOATS, _NO_BOOLS = np.zeros(0, np.float32), np.zeros(0, np.bool_)
_NO_KEYS = np.zeros((0, 0), np.float32)
_NO_STARTS, _NO_PLACES = np.zeros(0, np.int32), np.zeros(0, np.int64)


class Weighed(NamedTuple):
    """The candidates of a step: the arguments that the compiled loops share."""

    tokens: NDArray[Any]
    first: NDArray[np.int64]
    degree: NDArray[np.int64]
    start: NDArray[np.int64]
    own: NDArray[np.bool_]
    logits: NDArray[np.float32]
    largest: NDArray[np.float32]
    log_sum: NDArray[np.float32]
    kept: NDArray[np.bool_]
    kept_start: NDArray[np.int64]
    threads: int


def step(beams: Beams, inputs: StepInputs, over_kept: bool) -> Beams:
    """The next beams.

    Args:
        beams: on the CPU.
        inputs: with hidden states and head, or with logits.
        over_kept: whether the normalizer is that of the candidates that targeting keeps.
    """
    batch, places = beams.rows.shape
    table: DeviceTable = beams.search.tables.tables[beams.step]
    found, weigh = _prepared(beams, table, inputs, over_kept)
    # NumPy's arrays are made sooner than PyTorch's, and the loops want them.
    shape = (batch, inputs.width)
    tokens = np.empty((*shape, beams.step + 1), np.int32)
    scores = np.empty(shape, np.float32)
    keys = _NO_KEYS if inputs.nudge is None else np.empty(shape, np.float32)
    rows = np.empty(shape, np.int64)
    parents = np.empty(shape, np.int64)
    finished = np.empty(shape, np.bool_)
    count = np.empty(batch, np.int64)
    before = _flat(beams.tokens).reshape(batch * places, beams.step)
    base, bonus, nudge = _flat(beams.scores), _flat(inputs.bonus), _flat(inputs.nudge)

    def choose(begin: int, end: int) -> None:
        choice.choose(
            found.tokens,
            found.first,
            found.degree,
            found.start,
            found.own,
            found.logits.view(np.int32),
            found.logits,
            found.largest,
            found.log_sum,
            base,
            bonus,
            nudge,
            places,
            table.vocabulary,
            before,
            table.all_end,
            begin,
            end,
            tokens,
            scores,
            keys,
            rows,
            parents,
            finished,
            count,
        )

    def weigh_and_choose(begin: int, end: int) -> None:
        weigh(begin * places, end * places)
        choose(begin, end)

    of_requests = found.start[::places]
    if found.threads == 1 or batch >= _REQUESTS_EACH * found.threads:
        shared(weigh_and_choose, of_requests, found.threads)
    else:
        shared(weigh, found.start, found.threads)
        shared(choose, of_requests, found.threads)
    new_tokens, new_scores = torch.from_numpy(tokens), torch.from_numpy(scores)
    new_rows, new_finished = torch.from_numpy(rows), torch.from_numpy(finished)
    if table.ended_leaf is not None:
        new_rows, new_finished = ended(new_rows, new_tokens[:, :, -1], new_rows < 0, table)
    return Beams(
        step=beams.step + 1,
        tokens=new_tokens,
        scores=new_scores,
        keys=new_scores if keys is _NO_KEYS else torch.from_numpy(keys),
        rows=new_rows,
        parents=torch.from_numpy(parents),
        finished=new_finished,
        count=torch.from_numpy(count),
        search=beams.search,
    )


def candidates(beams: Beams, inputs: StepInputs, over_kept: bool) -> Candidates:
    """The padded slots of every beam; arguments as ``step``."""
    batch, places = beams.rows.shape
    table: DeviceTable = beams.search.tables.tables[beams.step]
    found, weigh = _prepared(beams, table, inputs, over_kept)
    shared(weigh, found.start, found.threads)
    slots = max(1, int(found.degree.max()))
    shape = (batch, places, slots)
    tokens = torch.empty(shape, dtype=torch.int32)
    scores = torch.empty(shape, dtype=torch.float32)
    rows = torch.empty(shape, dtype=torch.int64)
    choice.lay_out(
        found.tokens,
        found.first,
        found.degree,
        found.start,
        found.own,
        found.logits,
        found.largest,
        found.log_sum,
        _flat(beams.scores),
        _flat(inputs.bonus),
        found.kept,
        found.kept_start,
        table.vocabulary,
        0,
        batch * places,
        *(each.view(-1, slots).numpy() for each in (tokens, scores, rows)),
    )
    return Candidates(tokens, scores, rows)


def _prepared(
    beams: Beams, table: DeviceTable, inputs: StepInputs, over_kept: bool
) -> tuple[Weighed, Callable[[int, int], None]]:
    """The step's candidates, and what computes the logits and sums of some beams."""
    assert isinstance(table.tokens, PlainTokens)
    number = beams.rows.numel()
    tokens = table.tokens.listed
    plain = isinstance(table.starts, PlainStarts)
    starts = table.starts.listed if isinstance(table.starts, PlainStarts) else _NO_STARTS
    first, degree = np.empty(number, np.int64), np.empty(number, np.int64)
    start, own = np.empty(number + 1, np.int64), np.empty(number, np.bool_)
    finished = _flat(beams.finished) if table.may_have_finished else _NO_BOOLS
    total = logits.locate(starts, not plain, _flat(beams.rows), finished, first, degree, start, own)
    kept, kept_start = _kept(beams, table, degree)
    values: Any = inputs.hidden if inputs.logits is None else inputs.logits
    size = int(values.shape[2])
    given = _floats(values)
    head, bias = _floats(inputs.head), _floats(inputs.bias)
    found = _room_for(total)
    bits = found.view(np.int32)
    largest, log_sum = np.empty(number, np.float32), np.empty(number, np.float32)
    block = max(64, _HEAD_BYTES // (4 * size))
    if total < number * table.vocabulary // block:
        block = table.vocabulary  # hardly a head row is read twice

    def weigh(begin: int, end: int) -> None:
        if inputs.logits is None:
            logits.multiply(
                tokens,
                first,
                degree,
                start,
                own,
                given,
                head,
                size,
                block,
                table.vocabulary,
                begin,
                end,
                found,
            )
            if len(bias):
                logits.add_bias(tokens, first, degree, start, own, bias, begin, end, found)
        else:
            logits.pick(
                tokens, first, degree, start, own, given, table.vocabulary, begin, end, found
            )
        logits.weigh(
            start,
            degree,
            own,
            bits,
            found,
            kept,
            kept_start,
            over_kept,
            begin,
            end,
            largest,
            log_sum,
        )

    each = size if inputs.logits is None else _NUMBERS_OF_A_LOGIT
    threads = min(torch.get_num_threads(), 1 + (total + number) * each // _WORTH_SHARING)
    weighed = Weighed(
        tokens, first, degree, start, own, found, largest, log_sum, kept, kept_start, threads
    )
    return weighed, weigh


def _kept(
    beams: Beams, table: DeviceTable, degree: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which candidates targeting keeps, and where each beam's begin; of no length for all."""
    if beams.search.device_requests is None:
        return _NO_BOOLS, _NO_PLACES
    tiles = expand(table, beams, beams.width)
    counts = -(-degree // tiles.size)
    kept: NDArray[np.bool_] = kept_slots(beams, tiles).view(-1).numpy()
    return kept, (tiles.ends.numpy() - counts) * tiles.size


def _room_for(count: int) -> NDArray[np.float32]:
    """float32 [count] that this thread's next step may overwrite: memory that is asked for anew is
    first written by the system, page by page, which takes as long as summing what it is for.
    """
    room: NDArray[np.float32] | None = getattr(_rooms, "room", None)
    if room is None or len(room) < count:
        room = np.empty(count, np.float32)
        if count <= _LARGEST_ROOM:
            _rooms.room = room
    return room[:count]


def _flat(values: Tensor | None) -> NDArray[Any]:
    """The numbers of a tensor, in order; none of None."""
    # In NumPy, whose operations begin sooner.
    return _NO_FLOATS if values is None else values.numpy().reshape(-1)


def _floats(values: Tensor | None) -> NDArray[np.float32]:
    """The same as float32, the half precisions exactly."""
    return _flat(values if values is None or values.dtype == torch.float32 else values.float())
