"""How benchmarks speak: options, progress, complaints of one line. Nothing heavy is imported."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, NoReturn

from beamsieve.parallel import thread_count

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


def warn_of_load(threads: int, advice: str) -> None:
    """Say on stderr that other work keeps ``threads`` of this process from running at once.

    PyTorch's threads wait for one another, so that one without a processor holds up the rest: times
    are many times too long then, and the longer the more operations a contestant has.
    """
    if not hasattr(os, "getloadavg"):
        return
    cores, load = thread_count(None), os.getloadavg()[0]
    if load > cores - threads + 0.5:
        complain(
            f"The load is {load:.1f} on {cores} processors, and {threads} threads are to run: "
            f"beside other work such times mean little. {advice}"
        )


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
