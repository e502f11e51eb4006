"""``beamsieve build``, ``inspect`` and ``verify``: catalogs, and the indexes made from them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from beamsieve.cli.catalog_options import (
    AttributesOption,
    CatalogArgument,
    CodebooksOption,
    ColumnOption,
    EndTokenOption,
    FormatOption,
    OnErrorOption,
    RejectsOption,
    attributes_of,
    columns_of,
    dynamic_of,
    numbers_of,
    sizes_of,
)
from beamsieve.cli.descriptions import show_catalog, show_index
from beamsieve.cli.failures import fail
from beamsieve.cli.output import (
    JsonOption,
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
    parts = numbers_of("--static", static, int, "one number of parts per level, as 64,64,32,8")
    if parts is not None and min(parts) < 1:
        raise typer.BadParameter(f"{static!r} has a number below 1", param_hint="--static")
    fill = dynamic_of(dynamic)
    if parts is not None and fill is not None:
        raise typer.BadParameter("give --static or --dynamic, not both")
    if attributes is None and (parts is not None or fill is not None):
        raise typer.BadParameter(
            "they divide the matchers of targeting rules; give --attributes too",
            param_hint="--static or --dynamic",
        )
    declared = () if attributes is None else attributes_of(attributes)
    sizes = sizes_of(codebooks)
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
    attributes: AttributesOption = None,
    json: JsonOption = False,
) -> None:
    """Describe a catalog or an index: counts, branching, layouts, bytes."""
    from beamsieve.index import Index
    from beamsieve.index.recognised import is_index_file

    if format is None and is_index_file(file):
        if attributes is not None:
            raise typer.BadParameter("an index has its own", param_hint="--attributes")
        index = Index.load(file)
        stats = dict(index.stats())
        if json:
            print_json({"index": file} | stats)
        else:
            show_index(file, stats)
        return
    sizes = sizes_of(codebooks)
    declared = () if attributes is None else attributes_of(attributes)
    rows = _read(file, format, sizes, end_token, on_error, None, column, declared)
    report = rows.report.as_dict()
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

    names = columns_of(columns)
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


def _user_codebooks(index: Index) -> tuple[int, ...]:
    """The codebook sizes without end tokens."""
    if not index.end_token:
        return index.codebooks
    return tuple(size - 1 for size in index.codebooks[:-1])
