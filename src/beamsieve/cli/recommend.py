"""``beamsieve recommend``: what a trained model recommends."""

from __future__ import annotations

import json as json_module
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from beamsieve.cli.histories import (
    CheckpointArgument,
    ColumnOption,
    IndexArgument,
    OtherCatalogOption,
    UnknownOption,
    read,
)
from beamsieve.cli.output import (
    BackendOption,
    JsonOption,
    print_json,
    print_pairs,
    print_table,
    to_json,
)
from beamsieve.cli.paths import check_outputs, text_aside

if TYPE_CHECKING:
    from beamsieve.models.recommendation import Recommendation


def recommend(
    checkpoint: CheckpointArgument,
    index: IndexArgument,
    histories: Annotated[
        Path | None,
        typer.Argument(
            exists=True,
            dir_okay=False,
            help="Users' items, oldest first: .parquet, .jsonl or .csv. None with --concepts.",
        ),
    ] = None,
    concepts: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="What `beamsieve concepts` made: recommend without the model's backbone.",
        ),
    ] = None,
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
    other_catalog: OtherCatalogOption = False,
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
    if (histories is None) == (concepts is None):
        raise typer.BadParameter("give histories, or the concepts of some with --concepts")
    if metrics and concepts is not None:
        raise typer.BadParameter(
            "concepts do not say what came next; give the histories", param_hint="--metrics"
        )
    if free_beams and not metrics:
        raise typer.BadParameter("it adds to --metrics; give that too", param_hint="--free-beams")
    if concepts is not None and (column or unknown != "skip"):
        raise typer.BadParameter(
            "concepts were made of histories that have been read already; give it to "
            "`beamsieve concepts`",
            param_hint="--column" if column else "--unknown",
        )
    check_outputs(
        {"--output": output},
        {
            "the checkpoint": checkpoint,
            "the index": index,
            "the file of histories": histories,
            "the file of --concepts": concepts,
            "the file of --requests": requests,
        },
    )
    from beamsieve.index import Index
    from beamsieve.models.checkpoint import load_checkpoint
    from beamsieve.models.concepts import load_concepts
    from beamsieve.models.metrics import Metrics
    from beamsieve.models.serving import recommend as recommend_items

    loaded = Index.load(index)
    model = load_checkpoint(checkpoint, loaded, other_catalog=other_catalog)
    cut_offs = sorted({cut for cut in (5, 10) if cut < k} | {k})
    measured = Metrics(cut_offs, model.popular) if metrics else None
    asked = read(histories, column) if histories is not None else load_concepts(concepts or "")
    found = recommend_items(
        model,
        loaded,
        asked,
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


def _read_requests(path: Path) -> list[Any]:
    from beamsieve.errors import RequestError

    requests = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            request = json_module.loads(line)
        except (ValueError, RecursionError) as error:
            raise RequestError(
                f"{path}, line {number} is no JSON: {error}; give one object, or null, per history."
            ) from error
        if request is not None and not isinstance(request, dict):
            raise RequestError(
                f"{path}, line {number} is no object; give one, or null, per history, each on a "
                f"line of its own."
            )
        requests.append(request)
    return requests


def _show(found: Recommendation) -> None:
    who = f"row {found.row}" if found.user is None else f"user {found.user}"
    print(f"\n{who}" + (f": {found.reason}" if found.reason else ""))
    rows = [(rank, str(hit.item), hit.title, hit.score) for rank, hit in enumerate(found.items, 1)]
    if any(hit.title is not None for hit in found.items):
        print_table(("rank", "item", "title", "score"), rows)
    else:
        print_table(
            ("rank", "item", "score"), [(rank, item, score) for rank, item, _, score in rows]
        )
