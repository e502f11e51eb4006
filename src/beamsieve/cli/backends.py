"""``beamsieve backends`` and ``beamsieve conformance``: what is here, and whether it is right."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import partial
from json import loads
from pathlib import Path
from typing import Annotated

import typer

from beamsieve.cli.failures import BAD_ARGUMENTS
from beamsieve.cli.output import JsonOption, print_json, print_table
from beamsieve.cli.paths import check_outputs


def backends(
    check: Annotated[
        bool,
        typer.Option(help="Import and open each one, so that what is missing is known."),
    ] = True,
    json: JsonOption = False,
) -> None:
    """List the installed backends: what brings them, where they run, what they miss."""
    from beamsieve.registry import ENVIRONMENT, list_backends

    found = list_backends(check)
    if json:
        default = os.environ.get(ENVIRONMENT) or "auto"
        print_json({"default": default, "backends": [asdict(info) for info in found]})
        return
    rows = []
    for info in found:
        state = "not checked" if not info.checked else ", ".join(info.devices)
        if info.error:
            state = f"cannot be used: {info.error}"
        rows.append((info.name, info.distribution, state))
    print_table(("backend", "package", "devices"), rows)


def conformance(
    backend: Annotated[str, typer.Argument(help="Name or config string, such as torch:cpu.")],
    keyword: Annotated[
        str | None, typer.Option("-k", metavar="EXPR", help="Only the tests whose names match.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Device to test on, such as cuda:0.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer examples, and no slow tests.")
    ] = False,
    examples: Annotated[int | None, typer.Option(min=1, help="Random cases per property.")] = None,
    record: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write the outcome to this file.")
    ] = None,
    deviations: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Known deviations, in place of its own."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Hold a backend to the specification: the conformance suite."""
    from beamsieve.registry import BackendSpec
    from beamsieve_conformance import run

    check_outputs({"--record": record}, {"the file of --deviations": deviations})
    suite = partial(
        run,
        backend,
        keyword=keyword,
        device=device,
        quick=quick,
        deviations=deviations,
        examples=examples,
    )
    if not json:
        raise typer.Exit(suite(record=record))
    with tempfile.TemporaryDirectory() as folder:
        outcome = record or Path(folder) / "outcome.json"
        with redirect_stdout(sys.stderr):
            code = suite(record=outcome)
        if code != BAD_ARGUMENTS:
            name = BackendSpec.parse(backend).name
            result = loads(outcome.read_text(encoding="utf-8"))["runs"][name]
            print_json({"backend": backend, "conforms": code == 0} | result)
    raise typer.Exit(code)
