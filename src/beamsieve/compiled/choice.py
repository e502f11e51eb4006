"""Whether to work in compiled loops."""

from __future__ import annotations

import logging
import sys

from beamsieve.errors import BackendError, InputError
from beamsieve.toolchain import has_numba, imported, what_is_missing

FEW_ROWS = 1 << 16
"""Below, NumPy's passes take a few milliseconds at most."""
MANY_ROWS = 1 << 23
"""From here on, what is won is more than the second or so that Numba's first import takes."""

logger = logging.getLogger("beamsieve")


def compiles(compiled: bool | None, rows: int) -> bool:
    """Whether work on so many rows is to be done in compiled loops.

    Args:
        compiled: True or False as the caller wants it. None: where Numba is installed, from
            ``MANY_ROWS`` rows on; from ``FEW_ROWS`` on once it is imported anyway. The log says so,
            and warns of a Numba that cannot be imported.
        rows: how many there are.

    Raises:
        InputError: compiled loops are wanted, but there is no Numba; or neither True, False nor
            None.
        BackendError: compiled loops are wanted, but Numba cannot be imported.
    """
    if compiled is None:
        least = FEW_ROWS if "numba" in sys.modules else MANY_ROWS
        chosen = rows >= least and has_numba()
        try:
            if chosen:
                imported()
        except BackendError as error:
            logger.warning("%s NumPy does the work in place of compiled loops.", error)
            chosen = False
        if rows >= MANY_ROWS:
            logger.info("%d rows: in %s", rows, "compiled loops" if chosen else "NumPy's passes")
        return chosen
    if not isinstance(compiled, bool):
        raise InputError(f"compiled is {compiled!r}; give True, False or None.")
    if compiled and not has_numba():
        raise InputError(f"compiled=True needs Numba; {what_is_missing()}")
    if compiled:
        imported()
    return compiled
