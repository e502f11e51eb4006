"""The worked examples in the specification's docstrings are true, and the base stays short."""

import ast
import doctest
import importlib
import pkgutil
import sys
from pathlib import Path

import pytest

import beamsieve_spec

MODULES = ["beamsieve_spec"] + [
    f"beamsieve_spec.{module.name}" for module in pkgutil.iter_modules(beamsieve_spec.__path__)
]
FOLDER = Path(beamsieve_spec.__file__).parent


@pytest.mark.parametrize("name", MODULES)
def test_every_example_is_true(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.failed == 0, f"{outcome.failed} of {outcome.attempted} examples in {name} fail"


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    examples = sum(
        len(test.examples)
        for name in MODULES
        for test in finder.find(importlib.import_module(name))
    )
    assert examples >= 20


def test_base_is_under_600_lines() -> None:
    lines = {
        path.name: len(path.read_text(encoding="utf-8").splitlines())
        for path in FOLDER.glob("*.py")
        if not path.name.startswith("targeting")
    }
    assert sum(lines.values()) < 600, lines


def test_the_whole_is_an_evenings_reading() -> None:
    """XXH3 is not ours to decide, and need not be read."""
    lines = [
        len(path.read_text(encoding="utf-8").splitlines())
        for path in FOLDER.glob("*.py")
        if path.name != "targeting_hash.py"
    ]
    assert sum(lines) < 1300


def test_numpy_is_the_only_import_from_outside() -> None:
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                assert top in {"numpy", "beamsieve_spec"} or top in sys.stdlib_module_names, path
