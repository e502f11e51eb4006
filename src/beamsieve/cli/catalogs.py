"""``beamsieve build``, ``inspect`` and ``verify``: catalogs, and the indexes made from them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from beamsieve.cli.descriptions import show_catalog, show_index
from beamsieve.cli.failures import fail
from beamsieve.cli.output import (
    JsonOption,
    named_columns,
    print_json,
    progress,
    readable,
    readable_bytes,
)
from beamsieve.cli.paths import check_outputs, check_regular, named_at_the_end

if TYPE_CHECKING:
    from beamsieve.catalog import Catalog
    from beamsieve.index import Index
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


def build(
    catalog: CatalogArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", dir_okay=False, help="Index file to write.")
    ],
    format: FormatOption = None,
    codebooks: CodebooksOption = None,
    end_token: EndTokenOption = False,
    on_error: OnErrorOption = "raise",
    rejects: RejectsOption = None,
    column: ColumnOption = None,
    attributes: AttributesOption = None,
    static: Annotated[
        str | None,
        typer.Option(metavar="PARTS", help="Parts of each level's matchers, such as 64,64,32,8."),
    ] = None,
    dynamic: Annotated[
        str | None,
        typer.Option(metavar="FILL,MOST", help="In its place: target fill and most parts: 0.5,8."),
    ] = None,
    layout: Annotated[
        Literal["dense", "sparse"] | None,
        typer.Option(help="Force the layout of all tables; the smaller one each by default."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Build an index from a catalog. The file appears once it is complete."""
    from beamsieve.index import Index

    began = time.perf_counter()
    check_outputs(
        {"--output": output, "--rejects": rejects},
        {"the catalog": catalog, "the file of --attributes": attributes},
    )
    check_regular(output)
    parts = _numbers("--static", static, int, "one number of parts per level, as 64,64,32,8")
    if parts is not None and min(parts) < 1:
        raise typer.BadParameter(f"{static!r} has a number below 1", param_hint="--static")
    fill = _dynamic(dynamic)
    if parts is not None and fill is not None:
        raise typer.BadParameter("give --static or --dynamic, not both")
    if attributes is None and (parts is not None or fill is not None):
        raise typer.BadParameter(
            "they divide the matchers of targeting rules; give --attributes too",
            param_hint="--static or --dynamic",
        )
    declared = () if attributes is None else _attributes(attributes)
    sizes = _sizes(codebooks)
    rows = _read(catalog, format, sizes, end_token, on_error, rejects, column, declared)
    with _reporting() as report:
        index = Index.build(
            rows,
            layout=layout,
            static=parts,
            dynamic=fill,
            progress=report,
        )
        # Through a link, which stays one.
        index.save(os.path.realpath(output), progress=report)
    seconds = time.perf_counter() - began
    if json:
        result = {"index": output, "seconds": seconds, "rejected": dict(rows.rejected)}
        print_json(result | dict(index.stats()))
        return
    left_out = sum(rows.rejected.values())
    print(
        f"{output}: {readable(index.leaf_count)} semantic IDs of {readable(len(index.items))} "
        f"items, {readable_bytes(output.stat().st_size)}, in {seconds:.1f} s"
        + (f"; {readable(left_out)} rows left out" if left_out else "")
    )


def inspect(
    file: Annotated[Path, typer.Argument(exists=True, help="A catalog, or an index.")],
    format: FormatOption = None,
    codebooks: CodebooksOption = None,
    end_token: EndTokenOption = False,
    on_error: OnErrorOption = "raise",
    column: ColumnOption = None,
    json: JsonOption = False,
) -> None:
    """Describe a catalog or an index: counts, branching, layouts, bytes."""
    from beamsieve.index import Index
    from beamsieve.index.recognised import is_index_file

    if format is None and is_index_file(file):
        index = Index.load(file)
        stats = dict(index.stats())
        if json:
            print_json({"index": file} | stats)
        else:
            show_index(file, stats)
        return
    sizes = _sizes(codebooks)
    report = _read(file, format, sizes, end_token, on_error, None, column).report.as_dict()
    if json:
        print_json({"catalog": file} | report)
    else:
        show_catalog(report)


def verify(
    index: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="What `beamsieve build` made.")
    ],
    catalog: CatalogArgument,
    format: FormatOption = None,
    on_error: OnErrorOption = "raise",
    column: ColumnOption = None,
    json: JsonOption = False,
) -> None:
    """Check that an index holds every semantic ID of a catalog with its items, and nothing else."""
    from beamsieve.cli.comparison import first_difference
    from beamsieve.index import Index

    with _reporting() as report:
        built = Index.load(index, verify=True, progress=report)
    sizes = _user_codebooks(built)
    declared = built.row_layout.attributes
    rows = _read(catalog, format, sizes, built.end_token, on_error, None, column, declared)
    with _reporting() as report:
        difference = first_difference(
            built, rows, lambda done, total: report("looking up", done, total)
        )
    if json:
        print_json(
            {
                "index": index,
                "catalog": catalog,
                "equal": difference is None,
                "difference": difference,
                "sids": built.leaf_count,
                "fingerprint": built.fingerprint,
            }
        )
    if difference is not None:
        fail(f"{index} does not hold {catalog}: {difference}")
    if not json:
        print(
            f"{index} holds exactly {catalog}: {readable(built.leaf_count)} semantic IDs of "
            f"{readable(len(built.items))} items"
        )


def _read(
    path: Path,
    format: Any,
    codebooks: Sequence[int] | int | None,
    end_token: bool,
    on_error: Literal["raise", "skip"],
    rejects: Path | None,
    columns: list[str] | None,
    attributes: Sequence[Attribute] = (),
) -> Catalog:
    """Read a catalog under a progress bar."""
    from beamsieve.catalog import Catalog

    names = _columns(columns)
    if rejects is not None and on_error != "skip":
        raise typer.BadParameter("--rejects needs --on-error skip")
    with _reporting() as report, _rejects_aside(rejects) as aside:
        return Catalog.read(
            path,
            format,
            codebooks,
            end_token=end_token,
            on_error=on_error,
            rejects=aside,
            columns=names,
            progress=report,
            attributes=attributes,
        )


@contextmanager
def _rejects_aside(path: Path | None) -> Iterator[Path | None]:
    """Where to write rejects: complete, they get their name even if every row was one."""
    if path is None:
        yield None
        return
    with named_at_the_end(path, keep_on_error=True) as aside:
        yield aside


@contextmanager
def _reporting() -> Iterator[Any]:
    """A callback (what, done, total) that draws one bar per stretch of work."""
    with progress() as bars:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what)
            bars.update(tasks[what], completed=done, total=total or None)

        yield report


def _sizes(text: str | None) -> Sequence[int] | int | None:
    what = "one size above 0, or one per level, as 256,256,512"
    sizes = _numbers("--codebooks", text, int, what)
    if sizes is not None and min(sizes) < 1:
        raise typer.BadParameter(f"{text!r} is not {what}", param_hint="--codebooks")
    return sizes[0] if sizes is not None and len(sizes) == 1 else sizes


def _numbers(option: str, text: str | None, kind: type[Number], what: str) -> list[Number] | None:
    """The numbers of an option, with commas between them."""
    if text is None:
        return None
    try:
        return [kind(number) for number in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not {what}", param_hint=option) from None


def _dynamic(text: str | None) -> tuple[float, int] | None:
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


def _attributes(path: Path) -> Sequence[Attribute]:
    from beamsieve.targeting.attributes import read_attributes

    return read_attributes(path)


def _columns(texts: list[str] | None) -> Mapping[str, str | list[str]] | None:
    named = named_columns(texts, ("item", "sid", "title", "rules"))
    return {
        role: name.split(",") if role == "sid" and "," in name else name
        for role, name in named.items()
    } or None


def _user_codebooks(index: Index) -> tuple[int, ...]:
    """The codebook sizes without end tokens."""
    if not index.end_token:
        return index.codebooks
    return tuple(size - 1 for size in index.codebooks[:-1])
