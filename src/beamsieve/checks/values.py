"""Single values: whole numbers, names of dtypes, lists in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from beamsieve.errors import InputError


def dtype_name(array: Any) -> str:
    """The dtype of any library's array as NumPy spells it: "float32", "bfloat16", …"""
    dtype = array.dtype
    return str(getattr(dtype, "name", dtype)).rpartition(".")[2]


def whole_number(value: Any, what: str) -> int:
    """``value`` as an int of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InputError(f"{what} must be an integer, not {value!r}.")
    if value < 1:
        raise InputError(f"{what} must be at least 1, not {value}.")
    return int(value)


def listed(names: Sequence[str]) -> str:
    """Names in words: "a, b or c"."""
    return " or ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} or {names[-1]}"
