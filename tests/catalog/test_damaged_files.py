"""Bytes that are no text, and files in which a byte is another one: one sentence, no traceback."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamsieve import Catalog
from beamsieve.catalog.readers.csv_text import NO_CHARACTER, TextWithLastRow
from beamsieve.errors import CatalogError, InputError
from beamsieve.tokenizer.read import read_vectors

LAST = "\n\x02 the last row \x03,\x02 the last row \x03\n"
PIECES = ["a", "\n", "é", "北京", "😀", "\ufffd"]


class Dribble(io.BytesIO):
    """A stream that gives less than it is asked for."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(3, size if size is not None and size >= 0 else 3))


@given(
    st.lists(st.sampled_from([*(p.encode() for p in PIECES), b"\xff", b"\xc3", b"\xf0\x9f"])),
    st.integers(1, 40),
    st.sampled_from([io.BytesIO, Dribble]),
)
def test_whatever_the_bytes_arrow_is_given_text(
    pieces: list[bytes], size: int, stream: Callable[[bytes], Any]
) -> None:
    data = b"".join(pieces)
    text = TextWithLastRow(stream(data), ",", 2)
    given: list[bytes] = []
    while piece := text.read(size):
        assert len(piece) <= size
        given.append(piece)
    found = b"".join(given).decode("utf-8")
    assert found.endswith(LAST)
    found = found.removesuffix(LAST)
    try:
        assert found == data.decode("utf-8")
        assert not text.replaced
    except UnicodeDecodeError:
        assert text.replaced
        # What is text stays; a run of bytes that are none is one or more that stand for them.
        kept = data.decode("utf-8", "ignore")
        assert found.replace(NO_CHARACTER, "") == kept
        assert NO_CHARACTER in found


@pytest.mark.parametrize("unicode", [b"", "é".encode()])
def test_a_row_of_too_many_columns_that_is_no_text_is_a_bad_row(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], unicode: bytes
) -> None:
    path = tmp_path / "catalog.csv"
    path.write_bytes(b"item,sid\na%s,1 2\n\xff,1 1,extra\nb\xff,1 2\nc,1 0\n" % unicode)
    with pytest.raises(CatalogError, match="data row 2: the row has 3 columns"):
        Catalog.read(path)
    catalog = Catalog.read(path, on_error="skip")
    assert catalog.report.rejected == {"wrong number of columns": 1, "no UTF-8": 1}
    assert catalog.items.list(np.arange(2)) == [f"a{unicode.decode()}", "c"]
    assert capfd.readouterr().err == ""


def npy(path: Path) -> None:
    """A bracket that is never closed, in a header that NumPy reads as Python."""
    np.save(path, np.zeros((3, 2), np.int64))
    path.write_bytes(path.read_bytes().replace(b"(3, 2), }", b"(3, 2(, }"))


def npz(path: Path) -> None:
    """An archive whose entries name a compression that there is not."""
    np.savez(path, sids=np.zeros((3, 2), np.int64), vectors=np.zeros((3, 2)))
    whole = bytearray(path.read_bytes())
    for start in range(len(whole) - 4):
        for mark, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
            if whole[start : start + 4] == mark:
                whole[start + at] = 99
    path.write_bytes(bytes(whole))


def parquet(path: Path) -> None:
    """A column whose name is no text."""
    table = pa.table(
        {"item": [1, 2], "sid": [[0, 1], [1, 1]], "vector": [[0.5], [1.5]], "qqq": [1, 2]}
    )
    pyarrow.parquet.write_table(table, path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"qqq", b"q\xffq"))


@pytest.mark.parametrize(
    ("read", "error"), [(Catalog.read, CatalogError), (read_vectors, InputError)]
)
@pytest.mark.parametrize("damage", [npy, npz, parquet], ids=lambda damage: damage.__name__)
def test_damage_that_libraries_answer_in_their_own_way_is_one_line(
    read: Callable[[Path], object],
    error: type[Exception],
    damage: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    path = tmp_path / f"file.{damage.__name__}"
    damage(path)
    with pytest.raises(error) as refusal:
        read(path)
    assert str(refusal.value).startswith(str(path))
    assert "\n" not in str(refusal.value)
