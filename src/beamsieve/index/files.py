"""Index files: safetensors with a metadata header, mapped into memory, checked on load.

The header's metadata has one entry, ``beamsieve-index``: a JSON object with the format version,
what the arrays are (codebooks, counts, fingerprint), an xxh3 checksum of every array, and one of
the header itself. (One entry, as safetensors writes several in any order, and equal indexes give
equal files.) The checksum of an array of more than 16 MiB is that of its pieces' checksums: 16 MiB
each, the last one shorter, so that threads may take one each. No pickle is read or written.
"""

from __future__ import annotations

import json
import mmap as memory_map
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from beamsieve.aside import written_aside
from beamsieve.catalog.validate import Progress
from beamsieve.errors import IndexFileError
from beamsieve.index.checksums import array_checksums, header_checksum

KEY = "beamsieve-index"
VERSION = 3
_LENGTH_BYTES = 8
_DTYPES = {
    "I8": np.int8,
    "U8": np.uint8,
    "I16": np.int16,
    "U16": np.uint16,
    "I32": np.int32,
    "U32": np.uint32,
    "I64": np.int64,
    "U64": np.uint64,
}


@dataclass(frozen=True)
class IndexFile:
    """What a file holds: a description (plain JSON values), and the arrays by name."""

    description: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


def write_file(
    path: str | Path,
    description: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    progress: Progress | None = None,
) -> None:
    """Write aside, then rename, so that no half file is ever found under ``path``."""
    try:
        target = Path(os.path.realpath(path))  # a link goes on pointing to the file
    except (TypeError, ValueError) as error:
        raise IndexFileError(f"{path!r} is no path; name a file.") from error
    if not target.parent.is_dir():
        raise IndexFileError(f"{path}: the folder {target.parent} does not exist; create it first.")
    if target.is_dir():
        raise IndexFileError(f"{path}: this is a folder; name a file.")
    if target.exists() and not target.is_file():
        raise IndexFileError(f"{path}: this is a device or a pipe; name a file.")
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    report = progress or (lambda what, done, total: None)
    report("writing the index", 0, 2)
    about = {
        "version": VERSION,
        "index": description,
        "checksums": array_checksums(plain),
    }
    about["checksum"] = header_checksum(about, plain)
    report("writing the index", 1, 2)
    try:
        with written_aside(target) as aside:
            save_file(plain, aside, {KEY: json.dumps(about, sort_keys=True)})
            with aside.open("rb") as file:
                os.fsync(file.fileno())
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise IndexFileError(f"{path}: cannot be written: {reason}.") from error
    report("writing the index", 2, 2)


def read_file(
    path: str | Path, mmap: bool = True, verify: bool = True, progress: Progress | None = None
) -> IndexFile:
    """Read a file; its arrays are read-only views.

    Args:
        path: the file.
        mmap: map it into memory in place of reading it.
        verify: compare the checksum of every array. With and without it the places of texts are
            looked at: Arrow would read wherever they point.
        progress: called as checksums are compared.

    Raises:
        IndexFileError: the file is missing, foreign, of another format version, truncated or
            altered.
    """
    try:
        content = _content(Path(path), mmap)
    except IndexFileError:
        raise
    except (TypeError, ValueError) as error:
        raise IndexFileError(f"{path!r} is no path; name a file.") from error
    header, start = _header(path, content)
    about = _about(path, header.pop("__metadata__", None))
    size = start + max((_end(path, tensor) for tensor in header.values()), default=0)
    if len(content) < size:
        raise IndexFileError(
            f"{path}: truncated: {len(content)} bytes are left of {size}; copy or build it again."
        )
    try:
        with safe_open(path, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise IndexFileError(f"{path}: damaged: {error}; copy or build it again.") from error
    arrays = {name: _array(path, content, start, tensor) for name, tensor in header.items()}
    if about.get("checksum") != header_checksum(about, arrays):
        raise _altered_header(path)
    for part in ("index", "checksums"):
        if not isinstance(about.get(part), dict):
            raise IndexFileError(
                f"{path}: damaged: its header has no {part}; copy or build it again."
            )
    if verify:
        _verify(path, arrays, about["checksums"], progress)
    _check_texts(path, arrays)
    return IndexFile(about["index"], arrays)


def text_arrays(name: str, column: pa.Array) -> dict[str, NDArray[Any]]:
    """An Arrow large_string column as plain arrays."""
    column = (
        pa.concat_arrays([column])
        if column.offset == 0
        else column.take(pa.array(np.arange(len(column))))
    )
    offsets = np.frombuffer(column.buffers()[1], np.int64)[: len(column) + 1]
    data = column.buffers()[2]
    text = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    arrays = {
        f"{name}.offsets": offsets - offsets[0],
        f"{name}.text": text[offsets[0] : offsets[-1]],
    }
    if column.null_count:
        arrays[f"{name}.valid"] = np.packbits(
            np.asarray(column.is_valid().to_numpy(zero_copy_only=False)), bitorder="little"
        )
    return arrays


def text_column(name: str, arrays: Mapping[str, NDArray[Any]]) -> pa.Array:
    """The Arrow column of :func:`text_arrays`, without a copy."""
    offsets = arrays[f"{name}.offsets"]
    valid = arrays.get(f"{name}.valid")
    buffers = [
        None if valid is None else pa.py_buffer(valid),
        pa.py_buffer(offsets),
        pa.py_buffer(arrays[f"{name}.text"]),
    ]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


def _content(path: Path, mmap: bool) -> NDArray[np.uint8]:
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # opening it may never end
            raise IndexFileError(f"{path}: this is a device or a pipe; copy it into a file first.")
        with path.open("rb") as file:
            if not mmap or path.stat().st_size == 0:
                return np.frombuffer(file.read(), np.uint8)
            mapped = memory_map.mmap(file.fileno(), 0, access=memory_map.ACCESS_READ)
            return np.frombuffer(mapped, np.uint8)
    except FileNotFoundError as error:
        raise IndexFileError(f"{path}: there is no such file.") from error
    except OSError as error:
        raise IndexFileError(f"{path}: cannot be read: {error.strerror or error}.") from error


def _header(path: str | Path, content: NDArray[np.uint8]) -> tuple[dict[str, Any], int]:
    """The safetensors header, and where the data begin."""
    foreign = IndexFileError(f"{path}: no beamsieve index, or cut off within its header.")
    if len(content) < _LENGTH_BYTES:
        raise foreign
    (length,) = struct.unpack("<Q", content[:_LENGTH_BYTES].tobytes())
    start = _LENGTH_BYTES + length
    if start > len(content):
        raise foreign
    try:
        header = json.loads(content[_LENGTH_BYTES:start].tobytes())
    except (ValueError, RecursionError) as error:
        raise foreign from error
    if not isinstance(header, dict):
        raise foreign
    return header, start


def _about(path: str | Path, metadata: Any) -> dict[str, Any]:
    """What the header says of the index, if it is one that this library reads."""
    if not isinstance(metadata, dict) or KEY not in metadata:
        raise IndexFileError(f"{path}: a safetensors file, but no beamsieve index.")
    try:
        about = json.loads(metadata[KEY])
        version = about["version"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _altered_header(path) from error
    if type(version) is not int:
        raise _altered_header(path)
    if version > VERSION:
        raise IndexFileError(
            f"{path}: format version {version} is newer than this library reads ({VERSION}); "
            "upgrade beamsieve, or build the index again."
        )
    if version < VERSION:
        raise IndexFileError(
            f"{path}: format version {version} is older than this library reads ({VERSION}); "
            "build the index again from its catalog."
        )
    return dict(about)


def _altered_header(path: str | Path) -> IndexFileError:
    return IndexFileError(f"{path}: the header was altered; copy or build the index again.")


def _end(path: str | Path, tensor: Any) -> int:
    """Where an array's bytes end, from the start of the data."""
    try:
        start, end = tensor["data_offsets"]
        count = int(np.prod([int(n) for n in tensor["shape"]], dtype=object))
        size = np.dtype(_DTYPES[tensor["dtype"]]).itemsize * count
        if 0 <= start <= end and end - start == size:
            return int(end)
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    raise _altered_header(path)


def _array(
    path: str | Path, content: NDArray[np.uint8], start: int, tensor: Mapping[str, Any]
) -> NDArray[Any]:
    first, end = tensor["data_offsets"]
    values = content[start + first : start + end].view(_DTYPES[tensor["dtype"]])
    return values.reshape(tensor["shape"])


def _verify(
    path: str | Path,
    arrays: Mapping[str, NDArray[Any]],
    checksums: Mapping[str, str],
    progress: Progress | None,
) -> None:
    def report(done: int, total: int) -> None:
        if progress is not None:
            progress("verifying the index", done, total)

    for name, found in array_checksums(arrays, report).items():
        if checksums.get(name) != found:
            raise IndexFileError(
                f"{path}: array {name} was altered; copy or build the index again."
            )


def _check_texts(path: str | Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    for name, offsets in arrays.items():
        column = name.removesuffix(".offsets")
        if column == name:
            continue
        text = arrays.get(f"{column}.text")
        inside = offsets.ndim == 1 and len(offsets) and text is not None and offsets[0] >= 0
        inside = inside and text is not None and offsets[-1] <= text.size
        if not inside or (offsets[1:] < offsets[:-1]).any():
            raise IndexFileError(
                f"{path}: array {name} was altered; copy or build the index again."
            )
