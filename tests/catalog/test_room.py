"""Batches of a known number of rows end up in one array, copied once."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from beamsieve import Catalog
from beamsieve.catalog.readers import tables
from beamsieve.catalog.room import Room


def test_runs_lie_side_by_side() -> None:
    room = Room(10)
    runs = [room.put(np.full((size, 2), size)) for size in (3, 0, 5)]
    whole = room.whole(runs)
    assert whole is not None
    assert whole[:, 0].tolist() == [3] * 3 + [5] * 5
    assert whole.base is runs[0].base


def test_what_does_not_fit_is_left_as_it_is() -> None:
    room = Room(4)
    runs = [room.put(np.zeros(3, int)), np.ones(2, int), np.zeros(1, np.int8)]
    for run in runs[1:]:
        assert room.put(run) is run
        assert room.whole([runs[0], run]) is None
    assert room.whole(runs[:1]) is not None
    assert room.whole([]) is None


def test_batches_with_rejected_rows_and_other_widths_are_read_right(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tables, "BATCH_ROWS", 4)
    sids = [[1, 2, 3]] * 4 + [[4, 5, -7], [4, 5, 6]] + [[7, 8]] * 3 + [[9, 9, 9]]
    ids = list(range(10, 20))
    ids[-1] = None  # type: ignore[call-overload]
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pa.table({"item": ids, "sid": sids}), path)
    read = Catalog.read(path, on_error="skip", end_token=True)
    assert list(read.items) == [10, 11, 12, 13, 15, 16, 17, 18]
    assert read.sids.tolist() == [[1, 2, 3]] * 4 + [[4, 5, 6]] + [[7, 8, -1]] * 3
