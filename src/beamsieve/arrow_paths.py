"""Paths as Arrow takes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa


def for_arrow(path: Path) -> Any:
    """What Arrow reads ``path`` from: its name, or the file, opened.

    Arrow takes names that are text in UTF-8, and those of files on POSIX systems may be any bytes.

    Raises:
        OSError: the file cannot be opened.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return pa.OSFile(os.fsencode(path))
    return str(path)
