"""Which rows of a catalog cannot be used, why, and what becomes of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from beamsieve.catalog.keys import TokenRanges
from beamsieve.errors import CatalogError

OnError = Literal["raise", "skip"]
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is (0: unknown)."""

LARGEST_CODEBOOK = 2**31 - 1


class Rejects:
    """Takes rows that cannot be used: raises on the first, or counts and writes them.

    The rejects file is JSON lines: ``{"file": …, "row" (or "data_row", "line", "item"): …,
    "reason": …, "value": …}``. Rows of arrays and tables count from 0; the data rows below a CSV
    file's header, and the lines of text files, from 1.
    """

    def __init__(
        self, source: str, on_error: OnError = "raise", path: str | Path | None = None
    ) -> None:
        if on_error not in ("raise", "skip"):
            raise CatalogError(f'on_error is {on_error!r}; it must be "raise" or "skip".')
        self.source = source
        self.on_error = on_error
        self.count = 0
        self.reasons: Counter[str] = Counter()
        self._path = path
        self._file: IO[str] | None = None

    def add(self, source: str, unit: str, label: Any, why: tuple[str, str], value: Any) -> None:
        """Reject one row.

        Args:
            source: the file.
            unit: what the label counts: "row" (from 0), "data row", "line" (from 1), "item".
            label: which row.
            why: a short name for the reason, and a clause.
            value: what the row held.
        """
        kind, reason = why
        if self.on_error == "raise":
            counted = " (rows count from 0)" if unit == "row" else ""
            raise CatalogError(
                f"{source}, {unit} {label}: {reason} (value: {_shown(value)}); correct it, or "
                f'pass on_error="skip" to leave such rows out{counted}.'
            )
        self.count += 1
        self.reasons[kind] += 1
        if self._path is not None:
            if self._file is None:
                self._file = self._opened(self._path)
            key = unit.replace(" ", "_")
            record = {"file": source, key: label, "reason": reason, "value": _plain(value)}
            self._file.write(json.dumps(record, ensure_ascii=False) + "\n")

    @staticmethod
    def _opened(path: str | Path) -> IO[str]:
        # Lone surrogates, which UTF-8 cannot write, become JSON's own escapes.
        try:
            return Path(path).open("w", encoding="utf-8", errors="backslashreplace")
        except (OSError, TypeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CatalogError(
                f"rejects is {str(path)!r}, which cannot be written: {reason}; name a file."
            ) from error

    def __enter__(self) -> Rejects:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _plain(value: Any) -> Any:
    """``value`` as JSON can write it."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return repr(value)
    return value


def _shown(value: Any, limit: int = 120) -> str:
    text = repr(_plain(value))
    return text if len(text) <= limit else text[:limit] + "…"


def check_codebooks(codebooks: int | Iterable[int] | None) -> tuple[int, ...] | None:
    """The codebook sizes as a tuple.

    Raises:
        CatalogError: there is no size, or one is no integer from 1 to 2**31 - 1.
    """
    if codebooks is None:
        return None
    if isinstance(codebooks, (int, np.integer)):
        codebooks = [codebooks]
    if not isinstance(codebooks, Iterable) or getattr(codebooks, "ndim", 1) == 0:
        raise CatalogError(
            f"codebooks is {codebooks!r}; give one size, or a list with each level's."
        )
    sizes = []
    for level, size in enumerate(codebooks, 1):
        whole = isinstance(size, (int, np.integer)) and not isinstance(size, bool)
        if not whole or not 1 <= size <= LARGEST_CODEBOOK:
            raise CatalogError(
                f"The codebook of level {level} has size {size!r}; give an integer from 1 "
                f"to {LARGEST_CODEBOOK}."
            )
        sizes.append(int(size))
    if not sizes:
        raise CatalogError("codebooks is empty; give the size of each level's codebook.")
    return tuple(sizes)


def all_usable(ranges: TokenRanges, codebooks: Sequence[int] | None) -> bool:
    """Whether no row with tokens in these ranges can be a bad one; False where one might be."""
    sizes = codebooks or [LARGEST_CODEBOOK] * len(ranges.lowest)
    return min(ranges.lowest) >= 0 and all(
        top < size for top, size in zip(ranges.highest, sizes, strict=True)
    )


def bad_rows(sids: NDArray[Any], codebooks: Sequence[int] | None) -> NDArray[np.int64]:
    """The rows of ``sids`` (integers [n, L]) that are no semantic ID of these codebooks."""
    count, length = sids.shape
    if not length:
        return np.arange(count)
    bad = np.zeros(count, np.bool_)
    ended: NDArray[np.bool_] | None = None
    for level in range(length):
        column = sids[:, level]
        limit = LARGEST_CODEBOOK if codebooks is None else codebooks[level]
        if column.max(initial=0) >= limit:
            bad |= column >= limit
        if column.min(initial=0) < 0:
            bad |= column < -1
            padding = column < 0
            if level == 0:
                bad |= padding
            ended = padding if ended is None else ended | padding
        if ended is not None:
            bad |= ended & (column >= 0)
    return np.flatnonzero(bad)


def why_bad(sid: Sequence[int], codebooks: Sequence[int] | None) -> tuple[str, str]:
    """For one row of :func:`bad_rows`: a short name for the reason, and the reason as a clause."""
    if all(token == -1 for token in sid):
        return "missing semantic ID", "the semantic ID is missing"
    for level, token in enumerate(sid, 1):
        limit = LARGEST_CODEBOOK if codebooks is None else codebooks[level - 1]
        if token < -1:
            return "negative token", f"token {token} at level {level} is negative"
        if token >= limit:
            return (
                "token outside its codebook",
                f"token {token} at level {level} is not below its codebook's size, {limit}",
            )
    gap = list(sid).index(-1) + 1
    return (
        "padding inside",
        f"-1 at level {gap} is followed by another token, but -1 may only pad the end",
    )
