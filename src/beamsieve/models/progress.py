"""A progress bar on stderr, silent where nobody watches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """One bar, used for one stretch of work after the other."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, note="", state="")

    def begin(self, what: str, total: int | None) -> None:
        """Start a stretch of ``total`` pieces of work; None where that is not known."""
        self._progress.reset(self._task, total=total, description=what)

    def advance(self, state: str = "", by: int = 1) -> None:
        """Say that ``by`` pieces are done, and how it stands."""
        self._progress.update(self._task, advance=by, state=state)

    def note(self, note: str) -> None:
        """Say something that stays until the next note."""
        self._progress.update(self._task, note=note)


@contextmanager
def progress_bar(shown: bool | None = None) -> Iterator[Bar]:
    """A bar on stderr; None shows it where stderr is a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
        TextColumn("{task.fields[note]}"),
    )
    silent = not (console.is_terminal if shown is None else shown)
    with Progress(*columns, console=console, disable=silent, transient=True) as progress:
        yield Bar(progress)
