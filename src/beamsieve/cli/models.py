"""``beamsieve train`` and ``beamsieve recommend``: a model over a catalog, and its answers."""

from __future__ import annotations

import json as json_module
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from beamsieve.cli.output import (
    BackendOption,
    JsonOption,
    named_columns,
    print_json,
    print_pairs,
    print_table,
    to_json,
)
from beamsieve.cli.paths import check_outputs, check_regular, text_aside

if TYPE_CHECKING:
    from beamsieve.models.data import Histories
    from beamsieve.models.serving import Recommendation

LARGEST_SEED = 2**32 - 1
MOST_THREADS = 1024

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


def train(
    histories: HistoriesArgument,
    index: IndexArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", dir_okay=False, help="Checkpoint to write.")
    ],
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the histories at most.")] = 200,
    minutes: Annotated[
        float | None, typer.Option(help="Begin no epoch that would end later; no limit by default.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Histories per step.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="After the warm-up.")] = 2e-3,
    patience: Annotated[
        int, typer.Option(min=1, help="Epochs without a better validation loss before the end.")
    ] = 15,
    drop_history: Annotated[
        float, typer.Option(help="Chance that an item of a history is left out of one epoch.")
    ] = 0.5,
    label_smoothing: Annotated[
        float, typer.Option(help="Share of every target spread over its whole codebook.")
    ] = 0.0,
    dropout: Annotated[float, typer.Option(help="The model's.")] = 0.2,
    model_width: Annotated[int, typer.Option(min=1, help="Of backbone and decoder.")] = 64,
    layers: Annotated[int, typer.Option(min=1, help="Of the backbone.")] = 2,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Of everything random.")] = 0,
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_THREADS, help="CPU threads; torch's own choice by default."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:0.")] = "cpu",
    unknown: UnknownOption = "skip",
    column: ColumnOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted training stopped.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Train a small generator on histories of an index's items."""
    from beamsieve.errors import InputError
    from beamsieve.models.config import ModelConfig
    from beamsieve.models.resuming import state_path
    from beamsieve.models.training import TrainingSettings
    from beamsieve.models.training import train as train_model

    target = Path(os.path.realpath(output))  # through a link, which stays one
    check_outputs(
        {"--output": output, "the training's state": state_path(target)},
        {"the file of histories": histories, "the index": index},
    )
    check_regular(output)
    _check_device(device)
    try:
        config = ModelConfig(
            width=model_width, decoder_width=model_width, layers=layers, dropout=dropout
        )
        settings = TrainingSettings(
            epochs=epochs,
            minutes=minutes,
            batch=batch,
            learning_rate=learning_rate,
            patience=patience,
            drop_history=drop_history,
            label_smoothing=label_smoothing,
            seed=seed,
            threads=threads,
            device=device,
        )
    except InputError as error:
        raise typer.BadParameter(str(error)) from error
    report = train_model(
        _read(histories, column),
        index,
        target,
        config=config,
        settings=settings,
        unknown=unknown,
        resume=resume,
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
    column: ColumnOption = None,
    requests: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Targeting: JSON lines, one object (or null) per history, such as "
            '{"country": "US", "exclude": ["item-7"]}.',
        ),
    ] = None,
    other_catalog: Annotated[
        bool,
        typer.Option(
            "--other-catalog",
            help="Accept an index of another catalog of the same tokenizer, of newer items, say.",
        ),
    ] = False,
    metrics: Annotated[
        bool,
        typer.Option("--metrics", help="Compare with the histories' targets: Recall and NDCG."),
    ] = False,
    free_beams: Annotated[
        bool,
        typer.Option(
            "--free-beams",
            help="With --metrics: search without the filter too, and count beams that are no item.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Recommend items for each history: a table, or JSON lines with --json or -o."""
    check_outputs(
        {"--output": output},
        {
            "the checkpoint": checkpoint,
            "the index": index,
            "the file of histories": histories,
            "the file of --requests": requests,
        },
    )
    from beamsieve.index import Index
    from beamsieve.models.checkpoint import load_checkpoint
    from beamsieve.models.metrics import Metrics
    from beamsieve.models.serving import recommend as recommend_items

    loaded = Index.load(index)
    model = load_checkpoint(checkpoint, loaded, other_catalog=other_catalog)
    cut_offs = sorted({cut for cut in (5, 10) if cut < k} | {k})
    measured = Metrics(cut_offs, model.popular) if metrics else None
    found = recommend_items(
        model,
        loaded,
        _read(histories, column),
        k=k,
        width=width,
        backend=backend,
        normalize=normalize,
        batch=batch,
        unknown=unknown,
        requests=None if requests is None else _read_requests(requests),
        free_beams=free_beams and metrics,
        other_catalog=other_catalog,
    )
    target = text_aside(output) if output else nullcontext(sys.stdout if json else None)
    with target as lines:
        for recommendation in found:
            if measured is not None:
                measured.add(recommendation)
            if lines is not None:
                print(to_json(recommendation.as_dict()), file=lines)
            elif measured is None:
                _show(recommendation)
    if measured is not None:
        if json:
            print_json({"metrics": measured.result()})
        else:
            print_pairs(measured.result())


def _read(path: Path, columns: list[str] | None) -> Histories:
    from beamsieve.models.data import HistoryColumns, read_histories

    named = named_columns(columns, ("history", "target", "user"))
    return read_histories(path, HistoryColumns(**named))


def _read_requests(path: Path) -> list[Any]:
    from beamsieve.errors import RequestError

    requests = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            requests.append(json_module.loads(line))
        except ValueError as error:
            raise RequestError(
                f"{path}, line {number} is no JSON: {error}; give one object, or null, per history."
            ) from error
    return requests


def _check_device(device: str) -> None:
    import torch

    try:
        # A device such as "meta" makes tensors, but computes nothing.
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).partition("\n")[0]
        raise typer.BadParameter(
            f"torch cannot use {device!r}: {reason}", param_hint="--device"
        ) from error


def _show(found: Recommendation) -> None:
    who = f"row {found.row}" if found.user is None else f"user {found.user}"
    print(f"\n{who}" + (f": {found.reason}" if found.reason else ""))
    print_table(
        ("rank", "item", "title", "score"),
        [(rank, str(hit.item), hit.title, hit.score) for rank, hit in enumerate(found.items, 1)],
    )
