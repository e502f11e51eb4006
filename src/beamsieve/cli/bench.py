"""``beamsieve bench``: what a step costs; the benchmarks themselves live in ``beamsieve_bench``."""

from __future__ import annotations

import importlib

import typer

from beamsieve.cli.failures import BAD_ARGUMENTS, fail

BENCHMARKS = {
    "stage": ("beamsieve_bench.stage", "filter, project and select beside score-first decodes"),
    "matrix": ("beamsieve_bench.matrix", "backends beside baselines, over catalogs and shapes"),
    "advise": ("beamsieve_bench.advise", "the config string to use for an index here, and why"),
    "compare": (
        "beamsieve_bench.compare",
        "two runs of the matrix, with what is faster and slower",
    ),
    "report": ("beamsieve_bench.matrix_report", "a run of the matrix as a page or a picture"),
}
RAW_ARGUMENTS = {
    # A benchmark reads its own options, --help included.
    "allow_extra_args": True,
    "allow_interspersed_args": False,
    "ignore_unknown_options": True,
}


def bench(
    context: typer.Context,
    name: str = typer.Argument(help=f"One of {', '.join(BENCHMARKS)}."),
) -> None:
    """Measure a backend beside its baselines; `beamsieve bench NAME --help` lists the options."""
    if name not in BENCHMARKS:
        known = "; ".join(f"{known}: {what}" for known, (_, what) in BENCHMARKS.items())
        fail(f"there is no benchmark {name!r}; there are {known}.", BAD_ARGUMENTS)
    module = importlib.import_module(BENCHMARKS[name][0])
    raise typer.Exit(module.main(context.args))
