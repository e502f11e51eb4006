"""What commands that read catalogs take: their options, and what is in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from beamsieve.cli.output import named_columns

if TYPE_CHECKING:
    from beamsieve.targeting import Attribute

Number = TypeVar("Number", int, float)

CatalogArgument = Annotated[
    Path,
    typer.Argument(
        exists=True,
        help="A .parquet, .csv, .jsonl, .npy, .npz, *.index.json or info .txt file.",
    ),
]
FormatOption = Annotated[
    Literal["parquet", "csv", "jsonl", "npy", "npz", "index.json", "info"] | None,
    typer.Option("--format", help="The catalog's format, where its name does not tell."),
]
CodebooksOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZES",
        help="Codebook sizes, one for all levels or one each (256,256,512); "
        "by default one more than each level's largest token.",
    ),
]
EndTokenOption = Annotated[
    bool,
    typer.Option(
        "--end-token", help="Append an end token, so that one SID may be a prefix of another."
    ),
]
OnErrorOption = Annotated[
    Literal["raise", "skip"], typer.Option(help="What to do with a row that cannot be used.")
]
RejectsOption = Annotated[
    Path | None, typer.Option(dir_okay=False, help="Where to write skipped rows (JSON lines).")
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="ROLE=NAME",
        help="What a column is called: item=asin, title=name, rules=who, sid=code, or sid=a,b,c "
        "for one column per level; may be repeated.",
    ),
]

AttributesOption = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="What the column rules, and requests, may name: a JSON list such as "
        '[{"name": "country", "values": ["US"]}, {"name": "place", "bloom": 256}].',
    ),
]


def sizes_of(text: str | None) -> Sequence[int] | int | None:
    """--codebooks: one size, or one per level."""
    what = "one size above 0, or one per level, as 256,256,512"
    sizes = numbers_of("--codebooks", text, int, what)
    if sizes is not None and min(sizes) < 1:
        raise typer.BadParameter(f"{text!r} is not {what}", param_hint="--codebooks")
    return sizes[0] if sizes is not None and len(sizes) == 1 else sizes


def numbers_of(option: str, text: str | None, kind: type[Number], what: str) -> list[Number] | None:
    """The numbers of an option, with commas between them."""
    if text is None:
        return None
    try:
        return [kind(number) for number in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not {what}", param_hint=option) from None


def dynamic_of(text: str | None) -> tuple[float, int] | None:
    """--dynamic: the fill, and the most that stay."""
    if text is None:
        return None
    try:
        fill, most = text.split(",")
        read = float(fill), int(most)
        if not (0 <= read[0] <= 1 and read[1] >= 1):
            raise ValueError
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a fill from 0 to 1 and a whole number from 1, as 0.5,8",
            param_hint="--dynamic",
        ) from None
    return read


def attributes_of(path: Path) -> Sequence[Attribute]:
    """--attributes: what the file declares."""
    from beamsieve.targeting.attributes import read_attributes

    return read_attributes(path)


def columns_of(texts: list[str] | None) -> Mapping[str, str | list[str]] | None:
    """--column: names by role."""
    named = named_columns(texts, ("item", "sid", "title", "rules"))
    return {
        role: name.split(",") if role == "sid" and "," in name else name
        for role, name in named.items()
    } or None
