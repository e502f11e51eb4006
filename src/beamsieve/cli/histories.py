"""What the commands of models have in common: histories, indexes, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from beamsieve.cli.output import named_columns

if TYPE_CHECKING:
    from beamsieve.models.data import Histories

HistoriesArgument = Annotated[
    Path,
    typer.Argument(
        exists=True, dir_okay=False, help="Users' items, oldest first: .parquet, .jsonl or .csv."
    ),
]
IndexArgument = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="What `beamsieve build` made.")
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="ROLE=NAME",
        help="What a column is called: history=items, target=next, user=customer; may be repeated.",
    ),
]
UnknownOption = Annotated[
    Literal["skip", "refuse"],
    typer.Option(help="What to do with an item that the index does not have."),
]
CheckpointArgument = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="What `beamsieve train` made.")
]
OtherCatalogOption = Annotated[
    bool,
    typer.Option(
        "--other-catalog",
        help="Accept an index of another catalog of the same tokenizer, of newer items, say.",
    ),
]


def read(path: Path, columns: list[str] | None) -> Histories:
    """Histories of a file, whose columns may be called otherwise."""
    from beamsieve.models.data import HistoryColumns, read_histories

    named = named_columns(columns, ("history", "target", "user"))
    return read_histories(path, HistoryColumns(**named))


def check_device(device: str) -> None:
    """Refuse a device that torch cannot use.

    Raises:
        typer.BadParameter: it cannot.
    """
    import torch

    try:
        # A device such as "meta" makes tensors, but computes nothing.
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).partition("\n")[0]
        raise typer.BadParameter(
            f"torch cannot use {device!r}: {reason}", param_hint="--device"
        ) from error
