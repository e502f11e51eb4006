"""What commands print: tables for people, one JSON object for machines, progress on stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
BackendOption = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="NAME",
        help="Config string name[:device][?option=value&…], such as torch:cpu; "
        "by default BEAMSIEVE_BACKEND, else auto.",
    ),
]

# A pipe has no width; tables there are for a pager or a log, not to be cut off.
WIDTH_WITHOUT_TERMINAL = 200


def named_columns(texts: Sequence[str] | None, roles: Sequence[str]) -> dict[str, str]:
    """What ``--column ROLE=NAME`` says; NAME by role.

    Raises:
        typer.BadParameter: no such role, no name, or two names for one role.
    """
    columns: dict[str, str] = {}
    for text in texts or ():
        role, _, name = text.partition("=")
        if not name or role not in roles:
            forms = " or ".join(f"{role}=NAME" for role in roles)
            raise typer.BadParameter(
                f"{text!r} names no column; write {forms}", param_hint="--column"
            )
        if columns.setdefault(role, name) != name:
            raise typer.BadParameter(
                f"{columns[role]!r} and {name!r} are both named as {role}; name one",
                param_hint="--column",
            )
    return columns


def console() -> Console:
    """The terminal, or whatever stdout is now, for tables."""
    from rich.console import Console

    class Terminal(Console):
        """Leaves to the command what a reader that has enough means; rich would exit with 1."""

        def on_broken_pipe(self) -> None:
            raise  # the BrokenPipeError that is being handled

    width = None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
    return Terminal(file=sys.stdout, width=width, highlight=False, markup=False)


def print_json(value: Any) -> None:
    """Print one JSON value on a line of its own; NaN and infinities become null."""
    print(to_json(value))


def to_json(value: Any) -> str:
    """A value as one line of JSON; NaN and infinities become null."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
    """Print rows under headers; numbers to the right."""
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column, header in enumerate(headers):
        numeric = bool(rows) and all(isinstance(row[column], (int, float)) for row in rows)
        table.add_column(header, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(readable(cell) for cell in row))
    console().print(table)


def print_pairs(pairs: Mapping[str, Any]) -> None:
    """Print names and their values, one a line."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in pairs.items():
        table.add_row(name, readable(value))
    console().print(table)


def readable(value: Any) -> str:
    """A value as people read it: thousands apart, four digits of a fraction."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ")
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}".replace(",", " ")
    return "" if value is None else str(value)


def readable_bytes(count: int) -> str:
    """A number of bytes with its unit, such as 3.2 MB."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


@contextmanager
def progress() -> Iterator[Progress]:
    """Progress bars on stderr; silent where it is no terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    silent = not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), disable=silent, transient=True) as bars:
        yield bars


def _plain(value: Any) -> Any:
    """``value`` in what JSON knows: no NumPy scalars or arrays, tuples, paths or NaN."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, (str, int, bool, type(None))) else str(value)
