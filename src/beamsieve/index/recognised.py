"""Whether a file is an index: by its name, or by how it begins."""

from __future__ import annotations

from pathlib import Path


def is_index_file(path: Path) -> bool:
    """Whether a file goes by an index's name, or begins as safetensors do: a length, then JSON.

    Raises:
        OSError: it cannot be read.
    """
    if path.suffix == ".safetensors":
        return True
    if path.is_dir():
        return False
    with path.open("rb") as file:
        start = file.read(9)
    return len(start) == 9 and start[8:] == b"{" and start[4:8] == bytes(4)
