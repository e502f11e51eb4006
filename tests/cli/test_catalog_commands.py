"""``build``, ``inspect`` and ``verify``."""

from __future__ import annotations

import json

import numpy as np
import pytest

from beamsieve.catalog import Catalog
from beamsieve.index import Index


def test_build_writes_an_index_of_the_catalog(run, catalog, tmp_path, sids):
    output = tmp_path / "built.safetensors"

    outcome = run("build", catalog, "-o", output)

    assert outcome.code == 0
    assert outcome.stderr == ""
    assert "500 items" in outcome.stdout
    index = Index.load(output)
    assert index.leaf_count == len(np.unique(sids, axis=0))
    assert "item-3" in index.items_of(sids[3])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["built.safetensors", "catalog.csv"]


def test_build_as_json_is_one_object_with_the_sizes(run, catalog, tmp_path):
    output = tmp_path / "built.safetensors"

    result = json.loads(run("build", catalog, "-o", output, "--json").stdout)

    index = Index.load(output)
    assert result["fingerprint"] == index.fingerprint
    assert result["device_bytes"] == index.device_bytes
    assert [table["step"] for table in result["tables"]] == [1, 2, 3]


def test_build_takes_other_column_names_and_codebook_sizes(run, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("asin,x,y\nA,0,1\nB,1,0\n")
    output = tmp_path / "built.safetensors"

    outcome = run(
        *("build", table, "-o", output, "--column", "item=asin", "--column", "sid=x,y"),
        *("--codebooks", "4,8"),
    )

    assert outcome.code == 0, outcome.stderr
    index = Index.load(output)
    assert index.codebooks == (4, 8)
    assert index.items_of([1, 0]) == ["B"]


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_build_can_force_the_layout(run, catalog, tmp_path, layout):
    output = tmp_path / "built.safetensors"
    run("build", catalog, "-o", output, "--layout", layout)
    assert {table.layout for table in Index.load(output).tables} == {layout}


def test_build_skips_bad_rows_when_asked_and_writes_them_down(run, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("item,sid\na,0 1\nb,0 -5\nc,1 1\nd,\n")
    output, rejects = tmp_path / "built.safetensors", tmp_path / "rejects.jsonl"

    outcome = run("build", table, "-o", output, "--on-error", "skip", "--rejects", rejects)

    assert outcome.code == 0, outcome.stderr
    assert "2 rows left out" in outcome.stdout
    assert Index.load(output).leaf_count == 2
    assert len(rejects.read_text().splitlines()) == 2


def test_build_writes_rejects_even_when_no_row_is_left(run, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("item,sid\na,0 -3\nb,-5 0\n")
    rejects = tmp_path / "rejects.jsonl"

    outcome = run(
        *("build", table, "-o", tmp_path / "x.safetensors"),
        *("--on-error", "skip", "--rejects", rejects),
    )

    assert outcome.code == 1
    assert "every row was rejected" in outcome.complaint
    assert len(rejects.read_text().splitlines()) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rejects.jsonl", "table.csv"]


def test_build_appends_end_tokens_so_that_prefixes_are_found(run, tmp_path):
    table = tmp_path / "table.jsonl"
    table.write_text('{"item": 1, "sid": [0]}\n{"item": 2, "sid": [0, 1]}\n')
    output = tmp_path / "built.safetensors"

    assert "--end-token" in run("build", table, "-o", output).complaint
    assert run("build", table, "-o", output, "--end-token").code == 0
    assert Index.load(output).items_of([0]) == [1]
    assert run("verify", output, table).code == 0


def test_inspect_tells_a_catalog_from_an_index(run, catalog, index):
    assert "Title" not in run("inspect", catalog).stdout
    described = json.loads(run("inspect", catalog, "--json").stdout)
    stats = json.loads(run("inspect", index, "--json").stdout)

    assert described == {"catalog": str(catalog)} | json.loads(
        json.dumps(Catalog.read(catalog).report.as_dict())
    )
    assert stats == {"index": str(index)} | json.loads(json.dumps(Index.load(index).stats()))


def test_inspect_finds_an_index_under_any_name(run, index, tmp_path):
    renamed = tmp_path / "serving.idx"
    index.rename(renamed)

    outcome = run("inspect", renamed)

    assert outcome.code == 0, outcome.stderr
    assert "semantic IDs" in outcome.stdout


def test_tables_for_people_are_not_cut_off_in_a_pipe(run, catalog):
    lines = run("inspect", catalog).stdout.splitlines()
    assert not any("…" in line for line in lines)
    assert next(line for line in lines if line.startswith("level")).split()[-2:] == [
        "dense",
        "sparse",
    ]


def test_verify_passes_for_the_catalog_that_was_built(run, catalog, index):
    outcome = run("verify", index, catalog)
    assert outcome.code == 0, outcome.stderr
    assert "holds exactly" in outcome.stdout

    result = json.loads(run("verify", index, catalog, "--json").stdout)
    assert result["equal"] is True
    assert result["difference"] is None


def test_verify_does_not_mind_the_order_of_the_rows(run, catalog, index, sids, tmp_path):
    header, *rows = catalog.read_text().splitlines()
    # Items under one semantic ID keep their order.
    order = np.lexsort(sids.T)
    shuffled = tmp_path / "shuffled.csv"
    shuffled.write_text("\n".join([header, *(rows[n] for n in order)]) + "\n")

    assert run("verify", index, shuffled).code == 0


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda rows: [*rows, "new,11 11 11,"], "(11, 11, 11) of item 'new' is not in the index"),
        (lambda rows: [*rows, "item-0,0 0 0,"], "(0, 0, 0)"),
        (lambda rows: rows[1:], "item-0"),
        (lambda rows: [rows[0].replace("item-0", "other"), *rows[1:]], "other"),
    ],
    ids=["an item more", "an item on another path", "an item less", "another item"],
)
def test_verify_names_the_first_difference(run, tmp_path, change, difference):
    rows = ["item-0,3 1 2,", "item-1,3 1 4,", "item-2,0 5 9,", "item-3,0 5 9,"]
    built, changed = tmp_path / "built.csv", tmp_path / "changed.csv"
    built.write_text("\n".join(["item,sid,title", *rows]))
    changed.write_text("\n".join(["item,sid,title", *change(rows)]))
    index = tmp_path / "index.safetensors"
    run("build", built, "-o", index, "--codebooks", "16")

    outcome = run("verify", index, changed)

    assert outcome.code == 1
    assert difference in outcome.complaint
    as_json = run("verify", index, changed, "--json")
    assert as_json.code == 1
    assert json.loads(as_json.stdout)["equal"] is False


def test_verify_sees_items_of_one_semantic_id_in_another_order(run, tmp_path):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("item,sid\na,1 1\nb,1 1\nc,0 1\n")
    second.write_text("item,sid\nb,1 1\na,1 1\nc,0 1\n")
    index = tmp_path / "index.safetensors"
    run("build", first, "-o", index)

    complaint = run("verify", index, second).complaint

    assert "(1, 1) stands for items ['a', 'b'] in the index and for ['b', 'a']" in complaint
