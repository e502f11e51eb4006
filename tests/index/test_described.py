"""A file whose checksums fit, but whose fields or arrays are no index's, is refused in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import DROPPED, changed, places
from safetensors import safe_open
from safetensors.numpy import save_file

from beamsieve import Attribute, Catalog, Index
from beamsieve.errors import IndexFileError
from beamsieve.index.checksums import header_checksum
from beamsieve.index.files import KEY, IndexFile, read_file, write_file

ATTRIBUTES = [Attribute("country", ["US", "CA"]), Attribute("place", bloom=64)]
RULES = [{"country": {"accepts": ["US"]}}, {"place": {"accepts": ["y"]}}, {}]
SIDS = [[0, 1], [1, 1], [1, 0]]
CATALOGS: dict[str, Any] = {
    "strings and titles": lambda: Index.build(
        Catalog.from_arrays(SIDS, ["a", "b", "c"], titles=["A", None, "C"])
    ),
    "dense, collisions": lambda: Index.build(
        Catalog.from_arrays([*SIDS, [0, 1]], ["a", "b", "a", "c"]), layout="dense"
    ),
    "end tokens": lambda: Index.build(
        Catalog.from_arrays([[0, 1], [1, -1], [1, 0]], end_token=True)
    ),
    "rules in parts": lambda: Index.build(
        Catalog.from_arrays(SIDS, attributes=ATTRIBUTES, rules=RULES), static=[2, 1]
    ),
    "sampled starts, packed tokens": lambda: Index.build(
        Catalog.from_arrays(
            [[a, b] for a in range(300) for b in range(a % 7 + 1)], codebooks=[2048, 2048]
        )
    ),
}
OTHERS: list[Any] = [DROPPED, None, "x", 1.5, [], {}, [None], -1]


@pytest.fixture(params=CATALOGS)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> IndexFile:
    """What the file of one index holds."""
    CATALOGS[request.param]().save(tmp_path / "index")
    return read_file(tmp_path / "index", mmap=False)


def check_refused(path: Path, description: Any, arrays: Any, what: Any) -> None:
    write_file(path, description, arrays)
    with pytest.raises(IndexFileError) as refusal:
        pytest.fail(f"{Index.load(path)} was read, with {what}")
    said = str(refusal.value)
    assert said.startswith(f"{path}: "), what
    assert "\n" not in said, what
    assert "again" in said, what


def test_every_field_that_is_missing_or_of_another_kind_is_refused(
    file: IndexFile, tmp_path: Path
) -> None:
    for at in places(file.description, whole=("starts",)):
        if "attributes" in at[:1] and len(at) > 2:
            continue  # another attribute is one, too
        for value in OTHERS:
            if at == ("partitions", "static") and value is None:
                continue  # partitions to a target fill
            if at == ("partitions", "target") and value in (1.5, -1):
                continue  # which counts without static ones alone
            description = changed(file.description, at, value)
            if (at == ("attributes",) and value == []) or description == file.description:
                continue
            if at == ("attributes", 1) and value is DROPPED:
                continue
            check_refused(tmp_path / "other", description, file.arrays, (at, value))


def test_a_description_that_is_none_is_refused(file: IndexFile, tmp_path: Path) -> None:
    for value in OTHERS[1:]:
        check_refused(tmp_path / "other", value, file.arrays, value)


def test_fields_that_do_not_fit_each_other_are_refused(file: IndexFile, tmp_path: Path) -> None:
    first = file.description["tables"][0]
    for at, value in (
        (("leaves",), file.description["leaves"] + 1000),
        (("items",), file.description["items"] + 1),
        (("tables", 0, "entries"), first["entries"] + 1),
        (("tables", 1, "rows"), first["entries"] + 1),
        (("tables", 0, "block"), 7),
        (("tables", 0, "gap"), 2),
        (("codebooks",), [*file.description["codebooks"], 1]),
        (("fingerprint",), "0" * 31),
    ):
        check_refused(tmp_path / "other", changed(file.description, at, value), file.arrays, at)


def test_arrays_that_are_missing_or_of_another_form_are_refused(
    file: IndexFile, tmp_path: Path
) -> None:
    optional = {"titles.offsets", "titles.text", "titles.valid", "items.valid"}
    for name, array in file.arrays.items():
        others: dict[str, Any] = {"one dimension more": array[None]}
        if name != "leaf_items.numbers":
            others["another type"] = array.astype(np.int16)
        if name not in optional:
            others["missing"] = None
        if not name.endswith((".text", ".codes", "exceptions", ".rows", "forms.offsets")):
            others["shorter"] = array[:-1]
        for what, other in others.items():
            arrays = {**file.arrays, name: other}
            if other is None:
                del arrays[name]
            check_refused(tmp_path / "other", file.description, arrays, (name, what))


@pytest.mark.parametrize("part", ["index", "checksums"])
@pytest.mark.parametrize("other", [DROPPED, None, "x", [1]])
def test_a_header_whose_own_checksum_fits_may_lack_no_part(
    tmp_path: Path, part: str, other: Any
) -> None:
    path = tmp_path / "index"
    Index.build(Catalog.from_arrays(SIDS)).save(path)
    with safe_open(path, framework="numpy") as held:
        about = json.loads(held.metadata()[KEY])
        arrays = {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118
    if other is DROPPED:
        del about[part]
    else:
        about[part] = other
    about["checksum"] = header_checksum(about, arrays)
    save_file(arrays, path, {KEY: json.dumps(about)})
    with pytest.raises(IndexFileError, match=f"its header has no {part}"):
        read_file(path)
