"""The bytes of a CSV file as Arrow's reader can take them all: as UTF-8, with one more row."""

from __future__ import annotations

import re
from typing import Any

LAST_ROW = b"\x02 the last row \x03"
"""What every column holds in a row behind the last, which is read only if all quotes are closed."""
NO_CHARACTER = "\ufdd0"
"""What stands for bytes that are no UTF-8: Unicode keeps it free of meaning for such uses."""

_ESCAPED = re.compile("[\udc80-\udcff]+")
_LONGEST = 4
"""Bytes of a character in UTF-8, at most."""


class TextWithLastRow:
    """A CSV stream with one more row, which a quote that is never closed would swallow.

    Arrow hands a row of too many or too few columns over as text. Were it none in UTF-8, Arrow
    would print a traceback and give up; so whatever is none is replaced.

    Attributes:
        replaced: whether something was, so far.
    """

    closed = False

    def __init__(self, stream: Any, separator: str, columns: int) -> None:
        self.replaced = False
        self._stream = stream
        self._last = b"\n" + separator.encode().join([LAST_ROW] * columns) + b"\n"
        self._ready = b""
        self._cut = b""

    def read(self, size: int) -> bytes:
        """The next bytes, ``size`` at most; none at the end."""
        while not self._ready:
            data: bytes = self._stream.read(size)
            if data:
                self._ready = self._text(self._cut + data)
            elif self._cut or self._last:  # the file ends within a character, or before the row
                self._ready = self._text(self._cut, ends=True) + self._last
                self._last = b""
            else:
                return b""
        given, self._ready = self._ready[:size], self._ready[size:]
        return given

    def _text(self, data: bytes, *, ends: bool = False) -> bytes:
        """``data`` as UTF-8, but for the start of a character that the next bytes go on with."""
        self._cut = b""
        try:
            if not data.isascii():
                data.decode("utf-8")
            return data
        except UnicodeDecodeError as error:
            if not ends and error.reason == "unexpected end of data":
                self._cut = data[error.start :]
                return data[: error.start]
        if not ends:
            self._cut = _begun(data)
        self.replaced = True
        whole = data[: len(data) - len(self._cut)].decode("utf-8", "surrogateescape")
        return _ESCAPED.sub(NO_CHARACTER, whole).encode("utf-8")

    def close(self) -> None:
        """The stream is closed by who opened it."""


def _begun(data: bytes) -> bytes:
    """The start of a character at the end of ``data``, if there is one."""
    for length in range(1, min(_LONGEST, len(data) + 1)):
        tail = data[-length:]
        try:
            tail.decode("utf-8")
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data" and error.start == 0:
                return tail
    return b""
