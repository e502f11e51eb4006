"""Saved indexes come back the same; damaged, foreign and newer files are refused."""

from __future__ import annotations

import json
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import save_file

from beamsieve.catalog import Catalog
from beamsieve.errors import IndexFileError, InputError
from beamsieve.index import Index, checksums, files

SIDS = [[0, 3, -1], [0, 1, 2], [5, 0, 0], [5, 0, 0], [7, -1, -1], [5, 0, 70], [5, 0, 1]]
ITEMS = ["ä", "b", "c", "d", "e", "f", "b"]
TITLES = ["Ärmel", None, "third", "", "e", "f", "again"]


@pytest.fixture
def index() -> Index:
    return Index.build(
        Catalog.from_arrays(SIDS, ITEMS, titles=TITLES), ["dense", "sparse", "dense"]
    )


@pytest.fixture
def path(index: Index, tmp_path: Path) -> Path:
    index.save(tmp_path / "catalog.index")
    return tmp_path / "catalog.index"


def assert_same(one: Index, other: Index) -> None:
    assert other.fingerprint == one.fingerprint
    assert other.sid_fingerprint == one.sid_fingerprint
    assert other.stats() == one.stats()
    assert list(other.items) == list(one.items)
    assert other.titles_of(range(len(one.items))) == one.titles_of(range(len(one.items)))
    leaves = np.arange(one.leaf_count)
    assert other.sid_of_leaf(leaves).tolist() == one.sid_of_leaf(leaves).tolist()
    for mine, theirs in zip(
        one.items_of_leaves(leaves), other.items_of_leaves(leaves), strict=True
    ):
        assert mine.tolist() == theirs.tolist()
    for depth in range(one.length + 1):
        assert other.leaf_starts(depth).tolist() == one.leaf_starts(depth).tolist()
        assert other.leaf_ends(depth).tolist() == one.leaf_ends(depth).tolist()


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("verify", [True, False])
def test_round_trip(index: Index, path: Path, mmap: bool, verify: bool) -> None:
    assert_same(index, Index.load(path, mmap=mmap, verify=verify))


def test_round_trip_of_integer_items_and_end_tokens(tmp_path: Path) -> None:
    sids = [[2, -1], [2, 1], [0, 0]]
    index = Index.build(Catalog.from_arrays(sids, [-5, 2**62, 7], end_token=True))
    index.save(tmp_path / "i")
    loaded = Index.load(tmp_path / "i")
    assert_same(index, loaded)
    assert loaded.end_token
    assert loaded.items_of([2]) == [-5]
    assert loaded.items_of([2, 1]) == [2**62]
    assert loaded.children([2]).tolist() == [1, 2]


def test_same_catalog_gives_the_same_file(tmp_path: Path, index: Index, path: Path) -> None:
    order = [6, 2, 4, 1, 0, 3, 5]
    shuffled = Catalog.from_arrays(
        [SIDS[row] for row in order],
        [ITEMS[row] for row in order],
        titles=[TITLES[row] if row != 6 else None for row in order],
    )
    Index.build(shuffled, ["dense", "sparse", "dense"]).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_every_truncation_is_refused(path: Path, tmp_path: Path) -> None:
    content = path.read_bytes()
    damaged = tmp_path / "damaged"
    for size in [*range(0, len(content), 37), len(content) - 1]:
        damaged.write_bytes(content[:size])
        with pytest.raises(IndexFileError, match=r"truncated|cut off"):
            Index.load(damaged)


def test_byte_flips_are_refused_or_harmless(index: Index, path: Path, tmp_path: Path) -> None:
    content = path.read_bytes()
    random = np.random.default_rng(7)
    damaged = tmp_path / "damaged"
    refused = 0
    for place in random.integers(0, len(content), 2000):
        changed = bytearray(content)
        changed[place] ^= 1 << random.integers(0, 8)
        damaged.write_bytes(changed)
        try:
            loaded = Index.load(damaged)
        except IndexFileError:
            refused += 1
        else:
            assert_same(index, loaded)
    assert refused > 1900


def rows_of_many_forms() -> Index:
    """Tables of every form: sampled row starts with an exception and empty rows, packed tokens,
    dense.
    """
    random = np.random.default_rng(1)
    pairs = np.unique(random.integers(0, [300, 2048], (3000, 2)), axis=0)
    third = np.where(np.arange(len(pairs)) % 3, random.integers(0, 300, len(pairs)), -1)
    hub = np.column_stack([np.tile(pairs[1000], (200, 1)), np.arange(200)])
    sids = np.concatenate([np.column_stack([pairs, third]), hub])
    return Index.build(Catalog.from_arrays(sids, codebooks=[300, 2048, 300]))


def ask_everything(index: Index) -> list[Any]:
    """Every kind of question that the tables answer, at many places."""
    leaves = np.arange(0, index.leaf_count, 7)
    answers: list[Any] = [index.sid_of_leaf(leaves).tolist()]
    for token in range(0, 300, 13):
        below = index.children([token]).tolist()
        answers += [below, [index.contains([token, second]) for second in below[:5]]]
        answers += [index.children([token, second]).tolist() for second in below[:5]]
    return answers


def test_tables_of_every_form_come_back(tmp_path: Path) -> None:
    index = rows_of_many_forms()
    kinds = {table.starts.kind for table in index.tables}
    assert kinds == {"plain", "sampled"}
    assert {"packed", "dense"} <= {table.token_kind for table in index.tables}
    assert any(len(table.arrays.get("start_exceptions", [])) for table in index.tables)
    index.save(tmp_path / "index")
    loaded = Index.load(tmp_path / "index")
    assert_same(index, loaded)
    assert ask_everything(loaded) == ask_everything(index)


def test_damage_to_the_tables_is_refused_and_crashes_nothing_unverified(tmp_path: Path) -> None:
    index = rows_of_many_forms()
    index.save(tmp_path / "index")
    content = (tmp_path / "index").read_bytes()
    header = 8 + struct.unpack("<Q", content[:8])[0]
    places = json.loads(content[8:header])
    random = np.random.default_rng(5)
    damaged = tmp_path / "damaged"
    tables = [
        name for name, at in places.items() if name.startswith("table.") and 0 not in at["shape"]
    ]
    assert any(name.endswith("start_samples") for name in tables)
    for turn in range(200):
        first, end = places[tables[turn % len(tables)]]["data_offsets"]
        changed = bytearray(content)
        for place in random.integers(first, end, random.integers(1, 9)):
            changed[header + place] ^= random.integers(1, 256)
        damaged.write_bytes(changed)
        if changed == content:
            continue
        with pytest.raises(IndexFileError, match=r"array table\.\d\..* was altered"):
            Index.load(damaged)
        # Wrong answers and errors are to be expected of it, but nothing outside the arrays is read.
        with suppress(ValueError, IndexError, InputError):
            ask_everything(Index.load(damaged, verify=False))


@pytest.mark.parametrize("column", ["items", "titles"])
def test_texts_that_point_elsewhere_are_refused_unverified_too(column: str, path: Path) -> None:
    content = path.read_bytes()
    header = 8 + struct.unpack("<Q", content[:8])[0]
    first, end = json.loads(content[8:header])[f"{column}.offsets"]["data_offsets"]
    for value, place in ((1 << 60, first + 8), (-1, first), (1 << 60, end - 8)):
        changed = bytearray(content)
        changed[header + place : header + place + 8] = struct.pack("<q", value)
        path.write_bytes(changed)
        with pytest.raises(IndexFileError, match=rf"array {column}\.offsets was altered"):
            Index.load(path, verify=False)


def test_texts_that_point_elsewhere_are_refused_where_checksums_agree_too(path: Path) -> None:
    file = files.read_file(path, mmap=False)
    arrays = {name: np.array(array) for name, array in file.arrays.items()}
    arrays["items.offsets"][1] = 1 << 60
    files.write_file(path, dict(file.description), arrays)
    with pytest.raises(IndexFileError, match=r"array items\.offsets was altered"):
        Index.load(path)


def test_a_shape_that_is_no_number_is_refused(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"shape":[', b'"shape":[Infinity,', 1)[: len(content)])
    length = struct.pack("<Q", struct.unpack("<Q", content[:8])[0] + len("Infinity,"))
    path.write_bytes(length + path.read_bytes()[8:])
    with pytest.raises(IndexFileError, match="altered"):
        Index.load(path)


def test_added_bytes_are_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(IndexFileError, match="damaged"):
        Index.load(path)


def test_altered_array_is_named(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(IndexFileError, match=r"array .* was altered"):
        Index.load(path)
    Index.load(path, verify=False)


def rewrite_metadata(path: Path, **changes: Any) -> None:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    about = json.loads(header["__metadata__"]["beamsieve-index"]) | changes
    header["__metadata__"]["beamsieve-index"] = json.dumps(about)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def test_newer_version_is_refused(path: Path) -> None:
    rewrite_metadata(path, version=4)
    with pytest.raises(IndexFileError, match="version 4 is newer than this library reads"):
        Index.load(path)


def test_older_version_is_refused(path: Path) -> None:
    rewrite_metadata(path, version=1)
    with pytest.raises(IndexFileError, match=r"version 1 is older .* build the index again"):
        Index.load(path)


def test_altered_header_is_refused(path: Path) -> None:
    rewrite_metadata(path, index={})
    with pytest.raises(IndexFileError, match="header was altered"):
        Index.load(path)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "model.safetensors"
    save_file({"weight": np.zeros(3, np.float32)}, foreign)
    with pytest.raises(IndexFileError, match="no beamsieve index"):
        Index.load(foreign)
    foreign.write_text("just some text, long enough to hold a length")
    with pytest.raises(IndexFileError, match="no beamsieve index"):
        Index.load(foreign)
    foreign.write_bytes(b"")
    with pytest.raises(IndexFileError, match="no beamsieve index"):
        Index.load(foreign)
    with pytest.raises(IndexFileError, match="there is no such file"):
        Index.load(tmp_path / "nothing")
    with pytest.raises(IndexFileError, match="cannot be read"):
        Index.load(tmp_path)


def test_interrupted_write_leaves_the_old_file_and_nothing_else(
    index: Index, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def interrupted(tensors: object, file: Path, metadata: object) -> None:
        file.write_bytes(before[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr("beamsieve.index.files.save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Index.build(Catalog.from_arrays([[1]])).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_full_disk_is_an_error_and_leaves_nothing(
    index: Index, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def full(tensors: object, file: Path, metadata: object) -> None:
        file.write_bytes(before[:100])
        raise SafetensorError("No space left on device")

    monkeypatch.setattr("beamsieve.index.files.save_file", full)
    with pytest.raises(IndexFileError, match="cannot be written: No space left on device"):
        index.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_unwritable_places_are_refused(index: Index, tmp_path: Path) -> None:
    with pytest.raises(IndexFileError, match="does not exist"):
        index.save(tmp_path / "nowhere" / "i")
    with pytest.raises(IndexFileError, match="is a folder"):
        index.save(tmp_path)


def test_who_may_read_the_file_follows_the_umask(index: Index, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()
    index.save(tmp_path / "index.safetensors")
    assert (tmp_path / "index.safetensors").stat().st_mode == other.stat().st_mode


def test_progress_is_reported(index: Index, path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    index.save(path, progress=lambda *step: seen.append(step))
    Index.load(path, progress=lambda *step: seen.append(step))
    assert {what for what, _, _ in seen} == {"writing the index", "verifying the index"}
    assert all(done <= total for _, done, total in seen)
    assert seen[-1][1] == seen[-1][2]


def test_many_threads_may_save_to_one_path(index: Index, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: index.save(tmp_path / "one"), range(40)))
    assert_same(index, Index.load(tmp_path / "one"))
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_link_goes_on_pointing_to_the_file(index: Index, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for _ in range(2):
        index.save(tmp_path / "link")
        assert (tmp_path / "link").is_symlink()
        assert_same(index, Index.load(tmp_path / "target"))


def test_a_special_file_is_not_replaced(index: Index, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        with pytest.raises(IndexFileError, match="a device or a pipe"):
            index.save(tmp_path / name)
    assert (tmp_path / "pipe").is_fifo()


def test_what_is_no_path_is_refused(index: Index) -> None:
    with pytest.raises(IndexFileError, match="None is no path"):
        index.save(None)  # type: ignore[arg-type]
    with pytest.raises(IndexFileError, match="None is no path"):
        Index.load(None)  # type: ignore[arg-type]
    with pytest.raises(IndexFileError, match="is no path"):
        index.save("a\0b")
    with pytest.raises(IndexFileError, match="is no path"):
        Index.load("a\0b")


def test_a_large_array_is_checked_piece_by_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, "_PIECE_BYTES", 64)
    array = np.arange(100)
    path = tmp_path / "large.safetensors"
    files.write_file(path, {}, {"numbers": array})
    read = files.read_file(path).arrays["numbers"]
    assert read.tolist() == array.tolist()
    held = path.read_bytes()
    for place in (1, 300, 800):
        path.write_bytes(held[:-place] + bytes([held[-place] ^ 1]) + held[len(held) - place + 1 :])
        with pytest.raises(IndexFileError, match="array numbers was altered"):
            files.read_file(path)
        files.read_file(path, verify=False)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_refused_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "index.safetensors"
    os.mkfifo(pipe)
    with pytest.raises(IndexFileError, match="a device or a pipe"):
        Index.load(pipe)
