"""The example of docs/write-a-backend.md: what the page shows is the package, and it passes.

Here a part of the suite does; tox's wheel installs the package and runs all of it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from beamsieve_conformance import run

from .out_of_tree import EXAMPLE, SOURCE, announce

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "write-a-backend.md").read_text(encoding="utf-8")
PROJECT = (EXAMPLE.parents[1] / "pyproject.toml").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.S | re.M)


def test_the_page_shows_the_package_in_full() -> None:
    *pieces, _use = blocks("python")
    shown = [line for piece in pieces for line in piece.splitlines() if line]
    assert shown == [line for line in SOURCE.splitlines() if line]
    assert blocks("toml")[0].strip() == PROJECT.strip()


def test_the_example_passes_the_suite_as_a_package_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    project = tomllib.loads(PROJECT)["project"]
    ((name, target),) = project["entry-points"]["beamsieve.backends"].items()
    announce(tmp_path, name, target)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    tests = ["test_one_step.py", "test_beams.py", "test_targeting.py", "test_refusals.py"]
    code = run(name, quick=True, tests=tests, options=["-q", "--tb=short"])
    report = capfd.readouterr().out
    assert code == 0, report
    assert "failed" in report
    assert " passed, " in report
