"""What ``import beamsieve`` gives: every public name, each imported when it is asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import beamsieve as bs


def test_the_package_itself_imports_nothing_heavy():
    code = "import sys, beamsieve; print({'numpy', 'pyarrow', 'typing'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_every_public_name_comes_from_where_type_checkers_find_it():
    (checked,) = [
        block
        for block in ast.parse(Path(bs.__file__).read_text()).body
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name)
    ]
    names = {
        name.name: line.module
        for line in checked.body
        if isinstance(line, ast.ImportFrom) and line.module is not None
        for name in line.names
    }
    assert sorted(names) == bs.__all__
    for name, module in names.items():
        assert getattr(bs, name) is getattr(sys.modules[module], name)


def test_modules_are_names_of_the_package_and_others_are_refused():
    assert getattr(bs, "registry") is sys.modules["beamsieve.registry"]  # noqa: B009
    assert set(bs.__all__) <= set(dir(bs))
    with pytest.raises(AttributeError, match="no attribute 'Motor'"):
        bs.Motor  # type: ignore[attr-defined]  # noqa: B018 - asking is the test
