"""The site: the specification's pages lack nothing, figures are whole, numbers are computed."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import beamsieve as bs
from beamsieve_bench import scale

ROOT = Path(__file__).parents[2]
SPEC = sorted((ROOT / "spec" / "beamsieve_spec").glob("*.py"))
FIGURES = sorted((ROOT / "docs" / "figures").glob("*.svg"))


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """The hook that makes the specification's pages."""
    pytest.importorskip("mkdocs")
    made = importlib.util.spec_from_file_location("spec_pages", ROOT / "docs/theme/spec_pages.py")
    assert made is not None
    assert made.loader is not None
    module = importlib.util.module_from_spec(made)
    sys.modules[made.name] = module  # dataclasses look their module up
    made.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", SPEC, ids=lambda path: path.stem)
def test_the_code_on_a_page_is_the_code_of_its_module(hook, path):
    source = path.read_text("utf-8")
    words = {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    code = [
        line
        for number, line in enumerate(source.splitlines(), 1)
        if number not in words and line.strip() and not line.strip().startswith("#")
    ]
    _, pieces = hook.read(source)
    assert [line for piece in pieces for line in piece.code if line.strip()] == code


@pytest.mark.parametrize("path", SPEC, ids=lambda path: path.stem)
def test_the_words_of_a_module_are_on_its_page(hook, path):
    page = re.sub(r"\W+", " ", hook.page_of(path.read_text("utf-8"), path.stem))
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            words = (ast.get_docstring(node) or "").splitlines()[:1]
            for line in words:
                assert re.sub(r"\W+", " ", re.sub(r":\w+:", "", line)).strip() in page


def test_links_out_of_the_site_become_names(hook):
    text = "[interface.py](../src/beamsieve/interface.py#x) and [the example](examples/numpy)"
    named = hook.on_page_markdown(text)
    assert named == "interface.py (`src/beamsieve/interface.py`) and the example (`examples/numpy`)"
    assert hook.on_page_markdown("[cli](cli.md)") == "[cli](cli.md)"


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_a_figure_is_whole_says_what_it_shows_and_loads_nothing(path):
    root = ET.parse(path).getroot()
    assert root.tag.endswith("svg")
    text = path.read_text("utf-8")
    assert "<script" not in text
    assert not re.search(r"(href|src)=\"(?!#)", text)


def test_the_scale_page_says_what_its_arithmetic_gives():
    page = (ROOT / "docs" / "scale.md").read_text("utf-8")
    assert scale.rewritten(page, scale.tables()) == page


@pytest.mark.parametrize(("vocabulary", "length"), [(64, 4), (512, 3), (32, 5)])
def test_the_arithmetic_of_scale_is_that_of_real_tables(vocabulary, length):
    rng = np.random.default_rng(0)
    sids = np.unique(rng.integers(0, vocabulary, (60_000, length)), axis=0)
    index = bs.Index.build(bs.Catalog.from_arrays(sids, codebooks=vocabulary))
    entries = [table.entries for table in index.tables]
    assert scale.prefixes(len(sids), vocabulary, length) == pytest.approx(entries, rel=0.01)
    computed = scale.table_bytes(len(sids), vocabulary, length)
    assert computed == pytest.approx(index.device_bytes, rel=0.05)


def test_a_page_without_markers_is_refused():
    with pytest.raises(ValueError, match="has no"):
        scale.rewritten("nothing", "tables")
