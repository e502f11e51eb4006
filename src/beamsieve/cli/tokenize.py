"""``beamsieve tokenize``: from item vectors, or from what people had, to a catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from beamsieve.cli.output import JsonOption, named_columns, print_json, print_pairs
from beamsieve.cli.paths import check_outputs, check_regular, named_at_the_end


def tokenize(
    source: Annotated[
        Path,
        typer.Argument(
            exists=True,
            dir_okay=False,
            help="Item vectors (.npy, .npz, .parquet), or histories to learn them from.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", dir_okay=False, help="Parquet catalog to write.")
    ],
    codebooks: Annotated[
        str, typer.Option(metavar="SIZES", help="Codes per level, as in 256,256,256.")
    ] = "256,256,256",
    collision_level: Annotated[
        bool,
        typer.Option("--collision-level", help="Append a level that parts items of one SID."),
    ] = False,
    paths: Annotated[
        int, typer.Option(min=1, help="SIDs per item: under its so many nearest first codes.")
    ] = 1,
    clustering: Annotated[
        Literal["scikit-learn", "faiss"], typer.Option(help="What does the k-means.")
    ] = "scikit-learn",
    dimensions: Annotated[int, typer.Option(min=1, help="Of vectors that are learnt.")] = 64,
    window: Annotated[
        int, typer.Option(min=1, help="How far apart two items of a history count as a pair.")
    ] = 5,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of everything random.")] = 0,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="ROLE=NAME", help="Of histories, as in `train`."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Give items semantic IDs by residual k-means, and say how good they are."""
    from beamsieve.models.data import HistoryColumns
    from beamsieve.tokenizer import report_of, residual_kmeans
    from beamsieve.tokenizer.read import read_vectors, write_catalog

    check_outputs({"--output": output}, {"the input": source})
    check_regular(output)
    if output.suffix != ".parquet":
        raise typer.BadParameter(
            f"the catalog is written as Parquet, and {output.name!r} does not say so; give a name "
            "that ends in .parquet",
            param_hint="--output",
        )
    sizes = _sizes(codebooks)
    if paths > sizes[0]:
        raise typer.BadParameter(
            f"{paths} paths of {sizes[0]} first codes; give at most that many",
            param_hint="--paths",
        )
    named = named_columns(column, ("history", "target", "user"))
    found = read_vectors(
        source, dimensions=dimensions, window=window, seed=seed, columns=HistoryColumns(**named)
    )
    tokens = residual_kmeans(
        found.vectors,
        sizes,
        seed,
        clustering=clustering,
        paths=paths,
        collision_level=collision_level,
    )
    with named_at_the_end(output) as aside:
        write_catalog(aside, found.items, tokens)
    report = {"catalog": str(output), "learnt_from": found.source, **report_of(tokens)}
    if json:
        print_json(report)
    else:
        print_pairs(report)


def _sizes(text: str) -> list[int]:
    from beamsieve.catalog.validate import LARGEST_CODEBOOK

    try:
        sizes = [int(size) for size in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1 or max(sizes) > LARGEST_CODEBOOK:
        raise typer.BadParameter(
            f"{text!r} is no list of sizes up to {LARGEST_CODEBOOK}; write 256,256,256",
            param_hint="--codebooks",
        )
    return sizes
