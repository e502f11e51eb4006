"""The suite is itself tested: a backend that is wrong in one line fails the test named for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from beamsieve_conformance import run

from .broken import BROKEN, Broken
from .out_of_tree import SOURCE, install


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All broken backends, announced from one folder."""
    folder = tmp_path_factory.mktemp("broken")
    for broken in BROKEN:
        assert SOURCE.count(broken.right) == 1, f"{broken.name}: {broken.right!r} is not one line"
        install(folder, f"broken-{broken.name}", SOURCE.replace(broken.right, broken.wrong))
    return folder


def outcome(name: str, test: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and report of one test of the suite against one backend."""
    code = run(name, tests=[test], options=["-q", "--tb=line"])
    return code, capfd.readouterr().out


@pytest.mark.parametrize("broken", BROKEN, ids=[broken.name for broken in BROKEN])
def test_a_wrong_line_fails_the_test_named_for_it(
    broken: Broken,
    installed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(installed)
    code, report = outcome(f"broken-{broken.name}", broken.caught_by, capfd)
    assert code == 1, report
    assert "1 failed" in report, report
    assert broken.caught_by in report


def test_the_same_tests_pass_without_the_wrong_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "numpy-example", SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    tests = sorted({broken.caught_by for broken in BROKEN})
    code = run("numpy-example", tests=tests, options=["-q"])
    report = capfd.readouterr().out
    assert code == 0, report
    assert f"{len(tests)} passed" in report
