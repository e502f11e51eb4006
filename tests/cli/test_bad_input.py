"""What cannot be used is refused in one line that says what to do, and leaves no file behind."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

GOOD = "item,sid\na,0 1\nb,1 0\n"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def names(folder: Path) -> list[str]:
    """The files of a folder."""
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty.csv", b"", "empty"),
        ("empty.parquet", b"", "empty"),
        ("header.csv", b"item,sid\n", "no rows"),
        ("picture.csv", PNG, "picture.csv"),
        ("picture.parquet", PNG, "picture.parquet"),
        ("picture.jsonl", PNG, "picture.jsonl"),
        ("picture.npy", PNG, "picture.npy"),
        ("picture.npz", PNG, "picture.npz"),
        ("picture.index.json", PNG, "picture.index.json"),
        ("picture.txt", PNG, "picture.txt"),
        ("picture.csv.gz", PNG, "picture.csv.gz"),
        ("picture.png", PNG, "--format"),
        ("column.csv", b"item,price\na,3\n", "'item', 'price'; name another with --column"),
        ("two.csv", b"item,sid,sid_0\na,0,0\n", "the one to read with --column sid=NAME."),
        ("column.jsonl", b'{"item": 1}\n', "sid"),
        ("column.npz", None, '"sids" is missing'),
        ("floats.npy", None, "float64"),
        ("negative.csv", b"item,sid\na,0 1\nb,0 -4\n", "data row 2"),
        ("word.csv", b"item,sid\na,0 1\nb,0 x\n", "data row 2"),
        ("none.csv", b"item,sid\na,0 1\nb,\n", "data row 2"),
        ("noitem.csv", b"item,sid\na,0 1\n,0 2\n", "data row 2"),
        ("prefix.csv", b"item,sid\na,0\nb,0 1\n", "--end-token"),
        ("list.json", b"[1, 2]", "list.json"),
        ("line.jsonl", b'{"item": 1, "sid": [0]}\n{"item": 2,\n', "line 2"),
    ],
)
@pytest.mark.parametrize("command", ["build", "inspect"])
def test_a_catalog_that_cannot_be_used(run, tmp_path, command, name, content, says):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    elif name.endswith("npz"):
        np.savez(path, tokens=np.zeros((3, 2), int))
    else:
        np.save(path, np.zeros((3, 2)))
    words = ("-o", tmp_path / "out.safetensors") if command == "build" else ()

    outcome = run(command, path, *words)

    assert outcome.code == 1
    assert says in outcome.complaint
    assert outcome.stdout == ""
    assert names(tmp_path) == [name]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing.csv", "-o", "out.safetensors"], "does not exist"),
        (["good.csv"], "output"),
        (["good.csv", "-o", "missing/out.safetensors"], "the folder missing does not exist"),
        (["good.csv", "-o", "."], "directory"),
        (["good.csv", "-o", "out.safetensors", "--codebooks", "a,b"], "one size above 0"),
        (["good.csv", "-o", "out.safetensors", "--codebooks", "0"], "one size above 0"),
        (["good.csv", "-o", "out.safetensors", "--column", "price=x"], "names no column"),
        (["good.csv", "-o", "out.safetensors", "--column", "item"], "names no column"),
        (["good.csv", "-o", "out.safetensors", "--rejects", "r.jsonl"], "--on-error skip"),
        (["good.csv", "-o", "out.safetensors", "--on-error", "ignore"], "ignore"),
        (["good.csv", "-o", "out.safetensors", "--layout", "round"], "round"),
        (["good.csv", "-o", "out.safetensors", "--format", "xml"], "xml"),
        (["good.csv", "-o", "out.safetensors", "--fast"], "--fast"),
        (["good.csv", "-o", "out.safetensors", "--static", "2,2"], "give --attributes too"),
        (["good.csv", "-o", "out.safetensors", "--dynamic", "0.5,8"], "give --attributes too"),
        (
            ["good.csv", "-o", "out.safetensors", "--column", "item=a", "--column", "item=b"],
            "both named as item",
        ),
        (["good.csv", "other.csv", "-o", "out.safetensors"], "other.csv"),
    ],
)
def test_an_argument_that_cannot_be_used(run, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    Path("good.csv").write_text(GOOD)

    outcome = run("build", *words)

    assert outcome.code == 2
    assert says in outcome.complaint
    assert "beamsieve build --help" in outcome.complaint
    assert names(tmp_path) == ["good.csv"]


@pytest.mark.parametrize(
    ("sizes", "says"),
    [("1", "not below its codebook's size, 1"), ("2", "size, 2"), ("8,8", "level")],
)
def test_codebooks_that_the_catalog_does_not_fit(run, tmp_path, sizes, says):
    (tmp_path / "good.csv").write_text("item,sid\na,0 1 2\n")

    outcome = run(
        *("build", tmp_path / "good.csv", "-o", tmp_path / "out.safetensors"),
        *("--codebooks", sizes),
    )

    assert outcome.code == 1
    assert says in outcome.complaint
    assert names(tmp_path) == ["good.csv"]


def test_a_command_that_does_not_exist_is_answered_with_the_nearest(run):
    outcome = run("biuld")
    assert outcome.code == 2
    assert "Did you mean 'build'" in outcome.complaint


def test_no_command_shows_what_there_is(run):
    outcome = run()
    assert outcome.code == 2
    assert "conformance" in outcome.stdout


@pytest.mark.parametrize("damage", ["truncated", "altered", "other", "empty", "newer"])
@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_file_that_is_no_index(run, tmp_path, catalog, index, command, damage):
    content = index.read_bytes()
    index.write_bytes(
        {
            "truncated": content[:-40],
            "altered": content[:-40] + bytes(byte ^ 1 for byte in content[-40:]),
            "other": catalog.read_bytes(),
            "empty": b"",
            "newer": re.sub(rb'(version\\"\W*)\d', rb"\g<1>9", content, count=1),
        }[damage]
    )
    assert index.read_bytes() != content
    words = (index,) if command == "inspect" else (index, catalog)

    outcome = run(command, *words)

    assert outcome.code == 1
    assert "index.safetensors" in outcome.complaint
    assert outcome.stdout == ""


@pytest.mark.parametrize("command", ["build", "inspect", "verify", "train", "recommend"])
def test_a_missing_file(run, tmp_path, command):
    missing = tmp_path / "missing.csv"
    words = {
        "build": (missing, "-o", tmp_path / "out"),
        "inspect": (missing,),
        "verify": (missing, missing),
        "train": (missing, missing, "-o", tmp_path / "out"),
        "recommend": (missing, missing, missing),
    }[command]

    outcome = run(command, *words)

    assert outcome.code == 2
    assert "missing.csv" in outcome.complaint
    assert names(tmp_path) == []


def test_a_refusal_leaves_the_file_of_an_earlier_build_alone(run, tmp_path, catalog, index):
    before = index.read_bytes()
    catalog.write_text("item,sid\na,-7\n")

    assert run("build", catalog, "-o", index).code == 1
    assert index.read_bytes() == before


def test_debug_shows_where_an_error_comes_from(run, tmp_path):
    (tmp_path / "bad.csv").write_text("item,price\na,1\n")
    words = ("inspect", tmp_path / "bad.csv")

    for outcome in (run("--debug", *words), run(*words, "--debug")):
        assert outcome.code == 1
        assert "Traceback" in outcome.stderr
        assert outcome.stderr.splitlines()[-1].startswith("beamsieve: ")


def test_debug_behind_two_dashes_is_a_name(run):
    assert "'--debug' does not exist" in run("inspect", "--", "--debug").complaint


def test_a_bug_is_owned_up_to_in_one_line(run, catalog, monkeypatch):
    def broken(*arguments, **options):
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr("beamsieve.catalog.Catalog.read", broken)

    outcome = run("inspect", catalog)

    assert outcome.code == 1
    assert "ZeroDivisionError" in outcome.complaint
    assert "--debug" in outcome.complaint
