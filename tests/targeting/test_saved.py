"""Targeting in files, statistics and fingerprints; and rows that are stored once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beamsieve.catalog import Catalog
from beamsieve.errors import IndexFileError
from beamsieve.index import Index
from beamsieve.targeting import Attribute
from beamsieve.targeting.row_table import distinct_rows

ATTRIBUTES = [Attribute("age", [18, 25, 35]), Attribute("place", bloom=128)]
SIDS = [[a, b] for a in range(4) for b in range(5)]
RULES: list[Any] = [
    {"age": {"from": 25}, "place": {"accepts": [f"p{n % 3}", n % 2]}} if n % 3 else {}
    for n in range(len(SIDS))
]
REQUEST = {"age": 25, "place": ["p1", 0], "exclude": [3, 8]}


def build(**options: Any) -> Index:
    return Index.build(Catalog.from_arrays(SIDS, attributes=ATTRIBUTES, rules=RULES), **options)


@pytest.mark.parametrize("options", [{}, {"static": [3, 1]}, {"dynamic": (0.2, 4)}])
@pytest.mark.parametrize("mmap", [True, False])
def test_round_trip(options: dict[str, Any], mmap: bool, tmp_path: Path) -> None:
    index = build(**options)
    index.save(tmp_path / "i")
    loaded = Index.load(tmp_path / "i", mmap=mmap)
    assert loaded.stats() == index.stats()
    assert loaded.row_layout == index.row_layout
    assert loaded.matchers is not None
    assert index.matchers is not None
    mine, theirs = index.matchers.arrays(), loaded.matchers.arrays()
    assert mine.keys() == theirs.keys()
    assert all(mine[name].tobytes() == theirs[name].tobytes() for name in mine)
    numbers = np.arange(len(SIDS))
    assert loaded.eligible(REQUEST, numbers).tolist() == index.eligible(REQUEST, numbers).tolist()
    one, other = index.encode_requests([REQUEST], 1), loaded.encode_requests([REQUEST], 1)
    assert one.bits.tolist() == other.bits.tolist()
    assert one.bloom[0].tolist() == other.bloom[0].tolist()
    assert one.leaves.tolist() == other.leaves.tolist()


def test_fingerprint_names_rules_attributes_and_partitions() -> None:
    base = build()
    assert build().fingerprint == base.fingerprint
    changed = [*RULES[:-1], {}]
    others = [
        Index.build(Catalog.from_arrays(SIDS)),
        Index.build(Catalog.from_arrays(SIDS, attributes=ATTRIBUTES, rules=changed)),
        Index.build(Catalog.from_arrays(SIDS, attributes=ATTRIBUTES[::-1], rules=RULES)),
        build(static=[2, 1]),
    ]
    assert len({index.fingerprint for index in [base, *others]}) == 5
    assert {index.sid_fingerprint for index in [base, *others]} == {base.sid_fingerprint}


def test_altered_rules_are_refused(tmp_path: Path) -> None:
    build().save(tmp_path / "i")
    content = (tmp_path / "i").read_bytes()
    random = np.random.default_rng(1)
    refused = 0
    for place in random.integers(0, len(content), 300):
        changed = bytearray(content)
        changed[place] ^= 1 << random.integers(0, 8)
        (tmp_path / "i").write_bytes(changed)
        try:
            loaded = Index.load(tmp_path / "i")
        except IndexFileError:
            refused += 1
        else:
            assert loaded.fingerprint == build().fingerprint
    assert refused > 280


def test_stats_tell_fill_rates_and_shared_rows() -> None:
    index = build()
    assert index.matchers is not None
    first, last = index.stats()["matchers"]
    assert first["parts"] == 4
    assert last["parts"] == len(SIDS)
    for name, width in (("bits", 4), ("place", 128)):
        table = index.matchers.steps[1].segments[0 if name == "bits" else 1]
        shares = np.bitwise_count(table.rows).sum(axis=1)[table.index] / width
        assert last["fill"][name] == pytest.approx(shares.mean())
        assert last["distinct_rows"][name] == len(table.rows) < len(SIDS)
    assert first["fill"]["all"] > last["fill"]["all"]
    assert last["bytes_before"] == 8 * 3 * len(SIDS)
    assert last["bytes"] == index.matchers.steps[1].nbytes
    tables = sum(table.nbytes for table in index.tables)
    assert index.device_bytes == tables + index.matchers.nbytes


def test_progress_names_the_matchers() -> None:
    seen: list[tuple[str, int, int]] = []
    build(progress=lambda *step: seen.append(step))
    assert ("building matchers", 2, 2) in seen


def test_equal_rows_are_stored_once_in_order_of_appearance() -> None:
    random = np.random.default_rng(0)
    pool = random.integers(0, 2**63, (50, 3)).astype(np.uint64)
    pool[1] = pool[0]
    pool[1, 2] ^= np.uint64(1)
    rows = pool[random.integers(0, 50, 1000)]
    table = distinct_rows(rows)
    assert np.array_equal(table.all_rows(), rows)
    assert len(table.rows) == len(np.unique(rows, axis=0))
    firsts = [int(np.flatnonzero(table.index == n)[0]) for n in range(len(table.rows))]
    assert firsts == sorted(firsts)


def test_rows_with_one_hash_are_not_confused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beamsieve.targeting.row_table._MIX", ((np.uint64(1), np.uint64(0)),))
    rows = np.array([[5, 1], [4, 1], [5, 1], [0, 0]], np.uint64)
    table = distinct_rows(rows)
    assert table.index.tolist() == [0, 1, 0, 2]
    assert np.array_equal(table.all_rows(), rows)
