"""NumPy files: tokens alone (.npy), or with items and titles (.npz). No pickles."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve.catalog.batch import Batch
from beamsieve.catalog.items import NO_TEXT, as_text
from beamsieve.errors import CatalogError

DAMAGED = (
    *(ValueError, KeyError, TypeError, OSError, EOFError, TokenError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OverflowError),
)
"""What NumPy raises for a file that is damaged, or none of its own: a header is read as Python, an
archive may name a compression, or a password."""

_BATCH_ROWS = 1 << 20


def read_npy(path: Path) -> Iterator[tuple[Batch, int]]:
    """Tokens [N, L]; the items are the row numbers."""
    try:
        sids = np.load(path, mmap_mode="r", allow_pickle=False)
    except DAMAGED as error:
        raise CatalogError(f"{path}: not a .npy file of numbers, or a damaged one.") from error
    if not isinstance(sids, np.ndarray):
        raise CatalogError(f'{path}: this is an archive of arrays; read it with format="npz".')
    _check(path, "the array", sids)
    for start in range(0, len(sids), _BATCH_ROWS):
        yield Batch(str(path), sids[start : start + _BATCH_ROWS], labels=start), len(sids)


def read_npz(path: Path) -> Iterator[tuple[Batch, int]]:
    """The arrays "sids" [N, L] and, if there, "items" [N] and "titles" [N]."""
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            if isinstance(file, np.ndarray):
                raise CatalogError(f'{path}: this is a single array; read it with format="npy".')
            names = list(file)
            arrays = {name: file[name] for name in ("sids", "items", "titles") if name in names}
    except DAMAGED as error:
        if isinstance(error, CatalogError):
            raise
        raise CatalogError(f"{path}: not a .npz file of plain arrays, or a damaged one.") from error
    if "sids" not in arrays:
        raise CatalogError(
            f'{path}: array "sids" is missing; the file has {", ".join(names) or "no array"}.'
        )
    sids = arrays["sids"]
    _check(path, 'array "sids"', sids)
    for name in ("items", "titles"):
        if name in arrays and arrays[name].shape != (len(sids),):
            raise CatalogError(
                f'{path}: array "{name}" has shape {arrays[name].shape}; give one value for '
                f"each of the {len(sids)} rows."
            )
    unreadable: dict[int, tuple[str, str]] = {}
    ids = None
    if "items" in arrays:
        ids = _ids(path, arrays["items"], unreadable)
    titles = None
    if "titles" in arrays:
        titles, bad = as_text(str(title) for title in arrays["titles"])
        unreadable |= dict.fromkeys(bad, ("no text", f"the title {NO_TEXT}"))
    yield Batch(str(path), sids, ids, titles, unreadable=unreadable), len(sids)


def _ids(path: Path, items: NDArray[Any], unreadable: dict[int, tuple[str, str]]) -> pa.Array:
    if items.dtype.kind in "iuf":
        return pa.array(items)
    if items.dtype.kind != "U":
        raise CatalogError(
            f'{path}: array "items" has dtype {items.dtype}; item ids are integers or strings.'
        )
    ids, bad = as_text(items.tolist())
    unreadable |= dict.fromkeys(bad, ("unreadable item id", f"the item id {NO_TEXT}"))
    return ids


def _check(path: Path, what: str, sids: NDArray[Any]) -> None:
    if sids.ndim != 2 or sids.dtype.kind not in "iu":
        raise CatalogError(
            f"{path}: {what} has shape {sids.shape} and dtype {sids.dtype}; tokens are integers "
            "in rows, [N, L]."
        )
    if sids.size == 0:
        raise CatalogError(f"{path}: there are no rows; a catalog needs at least one item.")
