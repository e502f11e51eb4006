"""Whether to work in compiled loops."""

from __future__ import annotations

import logging
import sys

from beamsieve.errors import InputError
from beamsieve.toolchain import INSTALL, has_numba

FEW_ROWS = 1 << 16
"""Below, NumPy's passes take a few milliseconds at most."""
MANY_ROWS = 1 << 23
"""From here on, what is won is more than the second or so that Numba's first import takes."""

logger = logging.getLogger("beamsieve")


def compiles(compiled: bool | None, rows: int) -> bool:
    """Whether work on so many rows is to be done in compiled loops.

    Args:
        compiled: True or False as the caller wants it. None: where Numba is installed, from
            ``MANY_ROWS`` rows on; from ``FEW_ROWS`` on once it is imported anyway.
        rows: how many there are.

    Raises:
        InputError: compiled loops are wanted, but there is no Numba; or neither True, False nor
            None.
    """
    if compiled is None:
        least = FEW_ROWS if "numba" in sys.modules else MANY_ROWS
        chosen = rows >= least and has_numba()
        if rows >= MANY_ROWS:
            logger.info("%d rows: %s", rows, "compiled loops" if chosen else "NumPy, no Numba")
        return chosen
    if not isinstance(compiled, bool):
        raise InputError(f"compiled is {compiled!r}; give True, False or None.")
    if compiled and not has_numba():
        raise InputError(f"compiled=True needs Numba; install it with: {INSTALL}")
    return compiled
