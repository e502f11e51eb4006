"""What Ctrl-C does to a command: at first and at last it ends at once, in between it cleans up.

While modules are imported nothing has been written yet, and an exception would come out of the
middle of somebody's import; so the process says its line and is gone. A command that is at work
gets the exception, and removes what it has written aside.
"""

from __future__ import annotations

import os
import signal

CODE = 130
LINE = "interrupted; no half-written file is left."


def end_at_once() -> None:
    """From now on Ctrl-C ends the process, with the line and the code.

    Where the caller has Ctrl-C ignored (``nohup``) or caught, that stays.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_from_now() -> bool:
    """From now on Ctrl-C raises KeyboardInterrupt; says whether that is a change."""
    changes = signal.getsignal(signal.SIGINT) is _end
    if changes:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return changes


def _end(signal_number: int, frame: object) -> None:
    try:  # noqa: SIM105 - contextlib would have to be imported first
        os.write(2, f"beamsieve: {LINE}\n".encode())
    except OSError:  # stderr is closed
        pass
    os._exit(CODE)
