"""``beamsieve train`` and ``beamsieve recommend``: a model over a catalog, and its answers."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from beamsieve.cli.output import (
    BackendOption,
    JsonOption,
    print_json,
    print_pairs,
    print_table,
    to_json,
    written_aside,
)

if TYPE_CHECKING:
    from beamsieve.models.serving import Recommendation

HistoriesArgument = Annotated[
    Path,
    typer.Argument(
        exists=True, dir_okay=False, help="Users' items, oldest first: .parquet, .jsonl or .csv."
    ),
]
IndexArgument = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="What `beamsieve build` made.")
]
UnknownOption = Annotated[
    Literal["skip", "refuse"],
    typer.Option(help="What to do with an item that the index does not have."),
]


def train(
    histories: HistoriesArgument,
    index: IndexArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", dir_okay=False, help="Checkpoint to write.")
    ],
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the histories at most.")] = 200,
    minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Stop at the first epoch's end after this long.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Histories per step.")] = 128,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="After the warm-up.")] = 1e-3,
    patience: Annotated[
        int, typer.Option(min=1, help="Epochs without a better validation loss before the end.")
    ] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; torch's own choice.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:0.")] = "cpu",
    unknown: UnknownOption = "skip",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted training stopped.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Train a small generator on histories of an index's items."""
    from beamsieve.models.training import TrainingSettings
    from beamsieve.models.training import train as train_model

    settings = TrainingSettings(
        epochs=epochs,
        minutes=minutes,
        batch=batch,
        learning_rate=learning_rate,
        patience=patience,
        seed=seed,
        threads=threads,
        device=device,
    )
    report = train_model(
        histories, index, output, settings=settings, unknown=unknown, resume=resume
    ).as_dict()
    if json:
        print_json(report)
    else:
        print_pairs(report)


def recommend(
    checkpoint: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="What `beamsieve train` made.")
    ],
    index: IndexArgument,
    histories: HistoriesArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", dir_okay=False, help="Write JSON lines here, one a history."
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Items per history.")] = 10,
    width: Annotated[int, typer.Option(min=1, help="Beams kept per step.")] = 50,
    backend: BackendOption = None,
    normalize: Annotated[
        Literal["all", "catalog", "eligible"],
        typer.Option(help="Over which tokens probabilities sum to one."),
    ] = "catalog",
    batch: Annotated[int, typer.Option(min=1, help="Histories decoded at once.")] = 64,
    unknown: UnknownOption = "skip",
    metrics: Annotated[
        bool,
        typer.Option(
            "--metrics", help="Compare with the histories' targets; Recall and NDCG at 5 and k."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Recommend items for each history: a table, or JSON lines with --json or -o."""
    from beamsieve.models.metrics import Metrics
    from beamsieve.models.serving import recommend as recommend_items

    measured = Metrics(tuple(sorted({min(5, k), k}))) if metrics else None
    found = recommend_items(
        checkpoint,
        index,
        histories,
        k=k,
        width=width,
        backend=backend,
        normalize=normalize,
        batch=batch,
        unknown=unknown,
    )
    target = written_aside(output) if output else nullcontext(sys.stdout if json else None)
    with target as lines:
        for recommendation in found:
            if measured is not None:
                measured.add(recommendation)
            if lines is None:
                _show(recommendation)
            else:
                print(to_json(recommendation.as_dict()), file=lines)
    if measured is not None:
        result = measured.result()
        if json:
            print_json({"metrics": result})
        else:
            print_pairs(result)


def _show(found: Recommendation) -> None:
    who = f"row {found.row}" if found.user is None else f"user {found.user}"
    print(f"\n{who}" + (f": {found.reason}" if found.reason else ""))
    print_table(
        ("rank", "item", "title", "score"),
        [(rank, str(hit.item), hit.title, hit.score) for rank, hit in enumerate(found.items, 1)],
    )
