"""Files that are written aside, and get their name once they are complete."""

from __future__ import annotations

import atexit
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_BEGUN: dict[Path, int] = {}
"""Files aside that have not been removed yet, each with the process that writes it."""


@contextmanager
def written_aside(target: Path, *, keep_on_error: bool = False) -> Iterator[Path]:
    """A path beside ``target`` to write to; at the end the file is renamed to ``target``.

    No half file is ever found under the name, and nothing is left where an exception ends the work.

    Args:
        target: the name in the end. A symbolic link goes on pointing to the file.
        keep_on_error: whether an error (but no interruption) leaves the file under its name, too.

    Raises:
        OSError: the folder is missing or cannot be written to.
    """
    target = Path(os.path.realpath(target))
    # A name of its own for every call: several processes, or threads, may write one file.
    aside = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    _BEGUN[aside] = os.getpid()
    try:
        aside.touch(exist_ok=False)
        mode = aside.stat().st_mode
        try:
            yield aside
        except Exception:
            if not keep_on_error:
                raise
            aside.replace(target)
            raise
        aside.chmod(mode)  # some writers make files that their owner alone may read
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
        _BEGUN.pop(aside, None)


@atexit.register
def remove_left() -> None:
    """Remove what is still aside: Ctrl-C may come in the middle of ``written_aside`` itself."""
    for aside, process in list(_BEGUN.items()):
        if process != os.getpid():  # that was forked, and this is a file of its parent's
            continue
        with suppress(OSError):  # its folder is gone
            aside.unlink(missing_ok=True)
        del _BEGUN[aside]
