"""``beamsieve demo``: the whole way, on a world it makes itself."""

from __future__ import annotations

from typing import Annotated

import typer

from beamsieve.cli.output import JsonOption, print_json


def demo(
    json: JsonOption = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the world and of the training.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="A small world: seconds only.")] = False,
    backend: Annotated[
        str, typer.Option(metavar="NAME", help="Config string of the engine's backend.")
    ] = "torch:cpu",
) -> None:
    """Make a world, train a small model, and decode held-out users with and without the filter."""
    from beamsieve.registry import open_backend

    open_backend(backend)  # a name that is wrong should not cost the training first
    from beamsieve.demo import run_demo

    report = run_demo(json=json, seed=seed, quick=quick, backend=backend)
    if json:
        print_json(report)
