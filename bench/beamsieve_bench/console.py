"""How benchmarks speak: options, progress, complaints of one line. Nothing heavy is imported."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

FAILED, BAD_ARGUMENTS = 1, 2


def say(what: str) -> None:
    """Progress, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{what} …", end="", file=sys.stderr, flush=True)


def show_progress(turn: int, rounds: int) -> None:
    """Progress of the rounds."""
    say(f"round {turn} of {rounds}")
    if turn == rounds and sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


class OneLineParser(argparse.ArgumentParser):
    """Says in one line what is wrong with the arguments, as all commands do.

    Its description is shown as it is written: module docstrings have paragraphs and commands.
    """

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        complain(f"{message} (see '{self.prog} --help').")
        sys.exit(BAD_ARGUMENTS)


def complain(message: str) -> None:
    """Print a message as one line on stderr."""
    print(f"beamsieve: {' '.join(message.split())}", file=sys.stderr)
