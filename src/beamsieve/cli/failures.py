"""How a command ends when it cannot do its work: one line on stderr, and an exit code.

======  ========================================================================================
code    meaning
======  ========================================================================================
0       done
1       failed: what a file holds, a check that found a difference, a full disk
2       bad arguments: an option, a missing file, a backend that is not there or cannot serve
130     interrupted with Ctrl-C (143: ended by SIGTERM)
======  ========================================================================================
"""

from __future__ import annotations

import logging
import sys
from typing import NoReturn, TextIO

import typer

from beamsieve.errors import BackendError, BeamsieveError

FAILED = 1
BAD_ARGUMENTS = 2
PIPE_CLOSED = 141
TERMINATED = 143

# Packages that an extra brings, so that a missing one can be answered with the pip line.
EXTRAS = {
    "torch": "torch",
    "sklearn": "torch",
    "triton": "triton",
    "cupy": "cupy",
    "pandas": "pandas",
    "pytest": "conformance",
    "hypothesis": "conformance",
    "pytest_benchmark": "bench",
    "matplotlib": "bench",
}

# What a message that is meant for Python calls an argument, and what it is called here.
OPTIONS = {
    'on_error="skip"': "--on-error skip",
    "end_token=True": "--end-token",
    "codebooks=": "--codebooks",
    'columns={"sid": …}': "--column sid=NAME",
    "columns=": "--column",
    "attributes=": "--attributes",
    "format=,": "--format,",
    "format=": "--format ",
    "(other_catalog)": "(--other-catalog)",
    "Say which one holds": "Say with --column which one holds",
}


def say(message: str) -> None:
    """Print a message as one line on stderr."""
    print(f"beamsieve: {' '.join(message.split())}", file=sys.stderr, flush=True)


def say_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of our own; those of other libraries are for ``--debug``."""
    if category.__module__.startswith("beamsieve."):
        say(str(message))


class LogLines(logging.Handler):
    """The library's log as lines on stderr: warnings, and which backend "auto" took.

    In debug, all of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.debug = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is for the user of a command."""
        told = record.levelno >= logging.WARNING or record.module == "registry"
        return told or self.debug

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record."""
        say(record.getMessage())


def fail(message: str, code: int = FAILED) -> NoReturn:
    """End the command with one line: what was wrong, where, what to do."""
    say(message)
    raise typer.Exit(code)


def as_options(message: str) -> str:
    """A library's message, with its arguments called by the names of the options."""
    for argument, option in OPTIONS.items():
        message = message.replace(argument, option)
    return message


def explain(error: Exception) -> tuple[str, int]:
    """The line and the exit code that an exception deserves."""
    format_message = getattr(error, "format_message", None)
    if format_message is not None:  # typer's own: an argument that it could not read
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "beamsieve"
        return f"{format_message().rstrip('.')} (see '{path} --help').", BAD_ARGUMENTS
    if isinstance(error, BeamsieveError):
        code = BAD_ARGUMENTS if isinstance(error, BackendError) else FAILED
        return as_options(str(error)), code
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if package in EXTRAS:
            return (
                f"this command needs {package}, which is not installed; "
                f"run: pip install 'beamsieve[{EXTRAS[package]}]'",
                BAD_ARGUMENTS,
            )
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}; check the path, its rights and the free space.", FAILED
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # torch's words
        return "out of memory; use a smaller batch or width, or a machine with more.", FAILED
    kind = type(error).__name__
    return f"unexpected {kind}: {error} (a bug; --debug shows where it comes from)", FAILED
