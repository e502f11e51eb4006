"""Numba, where it is installed: how functions are compiled, and where the machine code is kept.

The code of a function is compiled once for each processor and kept in a folder of the user's:
``NUMBA_CACHE_DIR`` where that is set, else the user's folder for caches (``XDG_CACHE_HOME``,
``~/.cache``; ``LOCALAPPDATA`` on Windows), in ``beamsieve/numba-<hash>``. The hash is that of the
sources in the function's own folder: Numba itself looks only at the file of each function, not at
what it calls. Never in the package itself.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from beamsieve.errors import BackendError

Function = TypeVar("Function", bound=Callable[..., Any])

INSTALL = "pip install 'beamsieve[compiled]'"
logger = logging.getLogger("beamsieve")
_decorating = threading.RLock()
"""Held while Numba's own setting of the folder is another."""


@cache
def has_numba() -> bool:
    """Whether Numba is installed and may compile. It is not imported: that takes half a second."""
    return not _is_forbidden() and importlib.util.find_spec("numba") is not None


def what_is_missing() -> str:
    """What to do so that ``has_numba`` holds, as the end of a sentence."""
    if _is_forbidden():
        return "the variable NUMBA_DISABLE_JIT keeps it from compiling, unset it"
    return f"install it with: {INSTALL}"


def _is_forbidden() -> bool:
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def cache_folder(sources: Path) -> Path:
    """Where the compiled code of the functions in a folder of sources is kept."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        root = Path(given)
    elif sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    content = b"".join(path.read_bytes() for path in sorted(sources.glob("*.py")))
    return root / "beamsieve" / f"numba-{sha256(content).hexdigest()[:16]}"


def compiled(
    sources: Path, signatures: Sequence[Any] | None = None, **options: Any
) -> Callable[[Function], Function]:
    """Numba's ``njit`` for functions that let go of the interpreter, kept in ``cache_folder``.

    Args:
        sources: the function's own folder.
        signatures: Numba's, to be compiled for at once; None leaves it to the first call.
        options: more of Numba's own.

    Raises:
        BackendError: Numba cannot be imported.
    """

    def decorate(function: Function) -> Function:
        numba = imported()
        config = numba.config
        folder = writable_folder(sources)
        given = () if signatures is None else (list(signatures),)
        with _decorating:
            before = config.CACHE_DIR
            if folder is not None:
                config.CACHE_DIR = str(folder)  # read when a function is decorated, and only then
            try:
                made: Function = numba.njit(
                    *given, nogil=True, error_model="numpy", cache=folder is not None, **options
                )(function)
            finally:
                config.CACHE_DIR = before
        return made

    return decorate


@cache
def imported() -> Any:
    """Numba.

    Raises:
        BackendError: it cannot be imported.
    """
    try:
        import numba

        _ = numba.njit, numba.types  # a folder of that name may be something else
    except Exception as error:  # a Numba that fits another NumPy raises what it likes
        why = " ".join(str(error).split()).rstrip(".")
        raise BackendError(
            f"Nothing can be compiled: Numba cannot be imported ({why}). Install one that fits "
            f"with: {INSTALL}"
        ) from error
    return numba


@cache
def writable_folder(sources: Path) -> Path | None:
    """``cache_folder``, made and tried; None where it cannot be written, which the log says."""
    try:
        folder = cache_folder(sources)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, RuntimeError) as error:  # a user without a home has no folder for caches
        logger.warning(
            "Compiled code cannot be kept (%s), so every process compiles it anew; set "
            "NUMBA_CACHE_DIR to a folder that can be written.",
            " ".join(str(error).split()).rstrip("."),
        )
        return None
    logger.info("Numba compiles what is not kept in %s", folder)
    return folder
