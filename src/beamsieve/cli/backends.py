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
from typing import TYPE_CHECKING, Annotated

import typer

from beamsieve.cli.failures import BAD_ARGUMENTS
from beamsieve.cli.output import JsonOption, print_json, print_table
from beamsieve.cli.paths import check_outputs
from beamsieve.errors import BackendError

if TYPE_CHECKING:
    from beamsieve.registry import BackendInfo


def backends(
    check: Annotated[
        bool,
        typer.Option(help="Import and open each one, so that what is missing is known."),
    ] = True,
    first_use: Annotated[
        bool,
        typer.Option(
            "--first-use",
            help="Compile what the first search would wait for, and say how long it took.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the installed backends: what brings them, where they run, what they miss."""
    from beamsieve.registry import ENVIRONMENT, list_backends

    found = list_backends(check or first_use)
    seconds = {info.name: _first_use(info) if first_use else None for info in found}
    if json:
        default = os.environ.get(ENVIRONMENT) or "auto"
        shown = [asdict(info) | {"first_use_seconds": seconds[info.name]} for info in found]
        print_json({"default": default, "backends": shown})
        return
    rows = []
    for info in found:
        state = "not checked" if not info.checked else ", ".join(info.devices)
        if info.projections:
            missing = "".join(f"; for {name}: {line}" for name, line in info.missing.items())
            state += f" ({', '.join(info.projections)}{missing})"
        if info.error:
            state = f"cannot be used: {info.error}"
        taken = seconds[info.name]
        rows.append(
            (info.name, info.distribution, state, "" if taken is None else f"{taken:.1f} s")
        )
    columns = ("backend", "package", "devices (projections)", "first use")
    shown_columns = len(columns) if first_use else len(columns) - 1
    print_table(columns[:shown_columns], [row[:shown_columns] for row in rows])


def _first_use(info: BackendInfo) -> float | None:
    """The seconds that a backend's first search waits; None for nothing, or where it fails."""
    from beamsieve.errors import BeamsieveError
    from beamsieve.registry import open_backend

    if info.error:
        return None
    try:
        backend, _ = open_backend(info.name)
        return backend.first_use()
    except BeamsieveError as error:
        print(error, file=sys.stderr)
        return None


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
    processes: Annotated[
        int, typer.Option(min=1, help="How many processes share the tests (pytest-xdist).")
    ] = 1,
    record: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write the outcome to this file.")
    ] = None,
    deviations: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Known deviations, in place of its own."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Every test, every traceback, every cause in full.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Hold a backend to the specification: the conformance suite."""
    from beamsieve_conformance import records, run

    check_outputs({"--record": record}, {"the file of --deviations": deviations})
    suite = partial(
        run,
        backend,
        keyword=keyword,
        device=device,
        quick=quick,
        deviations=deviations,
        examples=examples,
        processes=processes,
        verbose=verbose,
    )
    if not json:
        raise typer.Exit(suite(record=record))
    if record is not None:
        records.read(record)
    with tempfile.TemporaryDirectory() as folder:
        outcome, causes = Path(folder) / "outcome.json", Path(folder) / "causes.json"
        with redirect_stdout(sys.stderr):
            code = suite(record=outcome, causes=causes)
        if code != BAD_ARGUMENTS:
            runs = records.read(outcome)["runs"]
            if not runs:
                raise BackendError("The run ended before any test did, so there is no outcome.")
            if record is not None:
                records.add(record, runs)
            (result,) = runs.values()
            found = {"causes": loads(causes.read_text(encoding="utf-8"))}
            print_json({"backend": backend, "conforms": code == 0} | result | found)
    raise typer.Exit(code)
