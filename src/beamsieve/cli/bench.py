"""``beamsieve bench``: what a step costs; the benchmarks themselves live in ``beamsieve_bench``."""

from __future__ import annotations

import typer


def bench(context: typer.Context) -> None:
    """Measure a backend beside its baselines: `beamsieve bench stage --help` says more."""
