"""Real catalogs: every number that their publishers, or a count by hand, give for them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beamsieve.catalog import Catalog
from beamsieve.index import Index

DATA = Path(
    os.environ.get("BEAMSIEVE_DATA", Path(__file__).resolve().parents[2] / "../shared/data")
)
INDUSTRIAL = "minionerec-industrial/Industrial_and_Scientific"
pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the real data sets are not in {DATA}"),
]


@pytest.mark.parametrize("name", [".index.json", "_5_2016-10-2018-11.txt"])
def test_industrial(name: str) -> None:
    catalog = Catalog.read(DATA / f"{INDUSTRIAL}{name}", codebooks=256)
    report = catalog.report
    assert (report.rows, report.items, report.sids) == (3686, 3686, 3670)
    assert (report.duplicates, report.multi_path_items, report.rejected) == (0, 0, {})
    assert (report.collisions.groups, report.collisions.items, report.collisions.largest) == (
        15,
        31,
        3,
    )
    assert report.depths == {3: 3670}
    assert [level.tokens_used for level in report.levels] == [48, 256, 256]
    assert [level.max_children for level in report.levels] == [48, 95, 47]
    assert report.levels[2].rows == 2295
    index = Index.build(catalog)
    assert index.contains([236, 231, 226])
    assert "0" in index.items_of([236, 231, 226])
    assert [table.layout for table in index.tables] == ["dense", "dense", "sparse"]


def test_industrial_files_agree_and_the_info_text_has_titles() -> None:
    one = Index.build(Catalog.read(DATA / f"{INDUSTRIAL}.index.json"))
    other = Index.build(Catalog.read(DATA / f"{INDUSTRIAL}_5_2016-10-2018-11.txt"))
    assert one.fingerprint == other.fingerprint
    numbers = other.items.numbers(["0"])
    assert other.titles_of(numbers) == [
        "SUPCO SPP6 Relay/Capacitor Hard Start Kit with 500% Increase Starting Torque"
    ]


def test_beauty() -> None:
    report = Catalog.read(DATA / "letter-beauty/Beauty.index.json").report
    assert (report.rows, report.items, report.sids) == (12101, 12101, 12088)
    assert (report.collisions.groups, report.collisions.items, report.collisions.largest) == (
        11,
        24,
        3,
    )
    assert [level.codebook for level in report.levels] == [256] * 4
    assert report.levels[0].tokens_used == 197
    assert [level.max_children for level in report.levels] == [197, 199, 23, 23]
