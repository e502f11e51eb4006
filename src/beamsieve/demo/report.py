"""The demo's result, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def show(result: Mapping[str, Any]) -> None:
    """Print the result of ``run_demo`` on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    world, training = result["world"], result["training"]
    console.print(
        f"\n[bold]A world[/] of {_count(world['items'])} items on {_count(world['semantic_ids'])} "
        f"semantic IDs of {world['levels']} × {world['codebook']} tokens; a model of "
        f"{_count(training['parameters'])} parameters, trained for {training['epochs']} epochs on "
        f"{_count(world['users'])} users' histories."
    )
    for number, user in enumerate(result["users"], 1):
        console.print(
            f"\n[bold]Held-out user {number}[/], after … {', '.join(user['history'][-3:])}"
        )
        console.print(_recommended(user))
        if not any(item["hit"] for item in user["recommended"]):
            console.print(f"[dim]What came next was {user['came_next']}.[/]")
    console.print(f"\n[bold]All {_count(result['held_out_users'])} held-out users[/]")
    console.print(_figures(result))
    console.print(
        f"[dim]{result['backend']}, seed {result['seed']}, "
        f"{sum(result['seconds'].values()):.0f} s in all: "
        + ", ".join(f"{part} {spent:.1f}" for part, spent in result["seconds"].items())
        + "[/]"
    )


def _recommended(user: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("rank", justify="right")
    table.add_column("recommended")
    table.add_column("log-probability", justify="right")
    table.add_column("")
    for rank, item in enumerate(user["recommended"], 1):
        mark = "[green]came next[/]" if item["hit"] else ""
        table.add_row(str(rank), item["name"], f"{item['score']:.2f}", mark)
    return table


def _figures(result: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("", "filter-first", "score-first", "no filter", "popularity"):
        table.add_column(column, justify="left" if not column else "right")
    legal, decode, stage = (
        result[name] for name in ("legal_share", "ms_per_request", "stage_ms_per_request")
    )
    for name, key in (("Recall@10", "recall_at_10"), ("NDCG@10", "ndcg_at_10")):
        table.add_row(name, f"{result[key]:.4f}", "", "", f"{result[f'popularity_{key}']:.4f}")
    table.add_row(
        "illegal beams",
        _share(1 - legal["with_filter"]),
        "",
        _share(1 - legal["without_filter"]),
    )
    table.add_row("same items as filter-first", "", _share(result["overlap"]))
    table.add_row(
        "ms per request, with model",
        *(f"{decode[name]:.3f}" for name in ("filter_first", "score_first", "without_filter")),
    )
    table.add_row(
        "ms per request, engine",
        *(f"{stage[name]:.3f}" for name in ("filter_first", "score_first")),
    )
    table.add_row("index bytes", _count(result["index_bytes"]))
    return table


def _share(share: float) -> str:
    # Rounding must not hide a single illegal beam, nor a single difference.
    return f"{share:.2%}" if share in (0, 1) or 1e-4 <= share <= 1 - 1e-4 else f"{100 * share:.4g}%"


def _count(number: int) -> str:
    return f"{number:,}".replace(",", " ")
