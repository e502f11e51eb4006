"""Numba, where it is installed: how functions are compiled, and where the machine code is kept.

The code of a function is compiled once for each processor and kept in a folder of the user's:
``NUMBA_CACHE_DIR`` where that is set, else the user's folder for caches (``XDG_CACHE_HOME``,
``~/.cache``; ``LOCALAPPDATA`` on Windows), in ``beamsieve/numba-<hash>``. The hash is that of this
folder's sources: Numba itself looks only at the file of each function, not at what it calls. Never
in the package itself.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from beamsieve.errors import BackendError

Function = TypeVar("Function", bound=Callable[..., Any])

INSTALL = "pip install 'beamsieve[compiled]'"
logger = logging.getLogger("beamsieve")


@cache
def has_numba() -> bool:
    """Whether Numba is installed and may compile. It is not imported: that takes half a second."""
    forbidden = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
    return not forbidden and importlib.util.find_spec("numba") is not None


def cache_folder() -> Path:
    """Where compiled code is kept."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        root = Path(given)
    elif sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return root / "beamsieve" / f"numba-{sha256(sources).hexdigest()[:16]}"


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Numba's ``njit`` for functions that let go of the interpreter, kept in ``cache_folder``.

    Args:
        options: more of Numba's own.
    """

    def decorate(function: Function) -> Function:
        numba = _numba()
        config = numba.config
        folder = _writable_folder()
        before = config.CACHE_DIR
        if folder is not None:
            config.CACHE_DIR = str(folder)  # read when a function is decorated, and only then
        try:
            made: Function = numba.njit(
                nogil=True, error_model="numpy", cache=folder is not None, **options
            )(function)
        finally:
            config.CACHE_DIR = before
        return made

    return decorate


@cache
def _numba() -> Any:
    try:
        import numba
    except Exception as error:  # a Numba that fits another NumPy raises what it likes
        why = " ".join(str(error).split()).rstrip(".")
        raise BackendError(
            f"Steps cannot be compiled: Numba cannot be imported ({why}). Install one that fits "
            f"with: {INSTALL}"
        ) from error
    kept = _writable_folder()
    where = "nowhere" if kept is None else kept
    logger.info("Numba %s compiles steps, unless they are kept in %s", numba.__version__, where)
    return numba


@cache
def _writable_folder() -> Path | None:
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError) as error:  # a user without a home has no folder for caches
        logger.warning(
            "Compiled steps cannot be kept (%s), so every process compiles them anew; set "
            "NUMBA_CACHE_DIR to a folder that can be written.",
            " ".join(str(error).split()).rstrip("."),
        )
        return None
