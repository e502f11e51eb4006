"""What a backend declares, as the names that tests ask for and the summary lists.

A test of something optional names it with ``@pytest.mark.needs("guidance: nudge")``, or takes a
parameter called ``dtype``, ``normalize`` or ``projection``. A backend that does not declare it is
not tested for it; it is tested for being refused it (``suite/test_refusals.py``).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from beamsieve.interface import Capabilities

EVERY = "every backend"
"""The heading of the tests that need nothing optional."""

PARAMETERS = {"dtype": "dtype", "normalize": "normalizer", "projection": "projection"}
"""Test parameters whose value is a feature, and the feature's kind."""

KNOWN: dict[str, tuple[str, ...]] = {
    "dtype": ("float32", "bfloat16", "float16", "float64"),
    "normalizer": ("all", "catalog", "eligible"),
    "projection": ("full", "selective", "compiled", "fused"),
    "targeting": ("bits", "bloom", "allow", "exclude"),
    "guidance": ("bonus", "nudge", "candidates"),
}
"""Every optional feature that has several forms."""

VARIABLE_LENGTH = "variable length"
DETERMINISTIC = "deterministic"
GRAPH = "CUDA graph"


def declared(capabilities: Capabilities) -> set[str]:
    """The features that a backend declares."""
    lists = {
        "dtype": capabilities.dtypes,
        "normalizer": capabilities.normalizers,
        "projection": capabilities.projections,
        "targeting": capabilities.targeting,
        "guidance": capabilities.guidance,
    }
    names = {f"{kind}: {form}" for kind, forms in lists.items() for form in forms}
    names |= {EVERY}
    if capabilities.variable_length:
        names.add(VARIABLE_LENGTH)
    if capabilities.deterministic:
        names.add(DETERMINISTIC)
    if capabilities.graph:
        names.add(GRAPH)
    return names


def refusable() -> list[str]:
    """The features whose absence the engine must refuse with a sentence."""
    return [f"{kind}: {form}" for kind, forms in KNOWN.items() for form in forms] + [
        VARIABLE_LENGTH
    ]


def wanted_by(item: pytest.Item) -> list[str]:
    """The features that a test is about, :data:`EVERY` if none is optional."""
    return sorted(set(_wanted(item))) or [EVERY]


def _wanted(item: pytest.Item) -> Iterator[str]:
    for mark in item.iter_markers("needs"):
        yield from mark.args
    parameters = (
        item.callspec.params
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else {}
    )
    for name, kind in PARAMETERS.items():
        if name in parameters:
            yield f"{kind}: {parameters[name]}"
