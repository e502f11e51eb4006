"""The report that the author of a wrong backend reads, from whole runs of the suite."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamsieve_conformance import run

from .broken import BROKEN
from .out_of_tree import SOURCE, install, package_of

Capture = pytest.CaptureFixture[str]
RAISES = SOURCE.replace(
    "table: Table = beams.search.tables[beams.step]\n\n",
    "table: Table = beams.search.tables[beams.step]\n"
    "        if beams.step == 1:\n"
    "            raise IndexError(f'{beams.width} is out of bounds')\n\n",
)
DIES = RAISES.replace(
    "raise IndexError(f'{beams.width} is out of bounds')", "__import__('os').abort()"
)


def broken(name: str) -> str:
    """The source of a backend that is wrong in one line."""
    (found,) = [one for one in BROKEN if one.name == name]
    return SOURCE.replace(found.right, found.wrong)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path; what is imported from it is forgotten."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(package_of(""))]:
        del sys.modules[name]


def test_a_wrong_normalizer_is_one_cause_and_named(site: Path, capfd: Capture) -> None:
    install(site, "subject", broken("softmax-over-everything"))
    assert run("subject", tests=["test_one_step.py", "test_tables.py"], quick=True) == 1
    said = capfd.readouterr().out
    assert len(said.splitlines()) < 100
    assert re.search(r"^FAILED, cause 1 of \d, \d\d tests: scores are wrong$", said, re.M)
    assert "spec/beamsieve_spec/step.py" in said
    assert "these scores are right for normalize='all'" in said
    assert "Traceback" not in said
    assert "test_one_step.py: " in said


@pytest.mark.parametrize(
    ("name", "test", "hint"),
    [
        (
            "bias-forgotten",
            "test_one_step.py::test_bias_is_added_to_the_product",
            "without the bias",
        ),
        (
            "score-of-the-first-beam",
            "test_beams.py::test_scores_follow_the_parent",
            "with the score of the first beam for the parent's",
        ),
    ],
)
def test_a_score_that_is_right_for_something_else_is_told(
    site: Path, capfd: Capture, name: str, test: str, hint: str
) -> None:
    install(site, "subject", broken(name))
    assert run("subject", tests=[test]) == 1
    assert f"these scores are right {hint}" in capfd.readouterr().out


def test_a_targeted_step_is_shown_with_its_request(site: Path, capfd: Capture) -> None:
    install(site, "subject", broken("one-word-of-bits-is-enough"))
    assert run("subject", tests=["test_targeting.py::test_bits_of_every_word_are_tested"]) == 1
    said = capfd.readouterr().out
    assert "too few or too many beams are kept" in said
    assert re.search(r"targeting: the request is {'group': \d+, 'country': 'CA'}", said)


def test_the_command_repeats_the_test_that_is_shown(site: Path, capfd: Capture) -> None:
    install(site, "subject", broken("softmax-over-everything"))
    assert run("subject", keyword="test_vectors or test_tables", quick=True) == 1
    said = capfd.readouterr().out
    commands = re.findall(r"^  repeat +(.*)$", said, re.M)
    shown_tests = re.findall(r"^  example +(.*)$", said, re.M)
    assert len(commands) == len(shown_tests) == 2
    for command, test in zip(commands, shown_tests, strict=True):
        words = shlex.split(command)
        assert words[:4] == ["beamsieve", "conformance", "subject", "--quick"]
        assert words[-1] == "--verbose"
        assert run("subject", quick=True, keyword=words[words.index("-k") + 1], verbose=True) == 1
        again = capfd.readouterr().out
        assert "= 1 failed, " in again
        assert " passed" not in again.splitlines()[-1]
        assert test.partition("[")[0] in again
        assert "DifferenceError" in again or "AssertionError" in again  # the traceback is there


def test_a_backend_that_raises_is_one_cause_with_its_place(site: Path, capfd: Capture) -> None:
    package = install(site, "subject", RAISES)
    line = RAISES[: RAISES.index("raise IndexError")].count("\n") + 1
    assert run("subject", tests=["test_one_step.py", "test_beams.py"], quick=True) == 1
    said = capfd.readouterr().out
    where = f"{package.name}/__init__.py:{line} (candidates)"
    assert f"IndexError in {where}\n" in said
    assert "cause 1 of 1" in said
    assert re.search(r"got +IndexError: \d+ is out of bounds", said)


def command_line(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``beamsieve conformance subject --quick`` in a process of its own: only what is on the path
    as an interpreter starts is there for the processes that it starts."""
    call = "import sys; from beamsieve.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", call, "conformance", "subject", "--quick", *words]
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=site,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_two_processes_tell_the_same_causes_and_json_holds_all(site: Path) -> None:
    install(site, "subject", broken("ties-from-the-back"))
    told = []
    for processes in ("1", "2"):
        words = ["-k", "test_prefix", "--json", "--processes", processes]
        done = command_line(site, *words)
        assert done.returncode == 1, done.stderr
        told.append(json.loads(done.stdout))
        assert "FAILED, cause 1 of " in done.stderr
    one, two = told
    names = [
        [sorted(f["test"] for f in one["failures"]) for one in said["causes"]] for said in told
    ]
    assert names[0] == names[1]
    assert sum(map(len, names[0])) == one["counts"]["failed"] == two["counts"]["failed"] > 4
    assert one["conforms"] is two["conforms"] is False
    assert [cause["cause"] for cause in one["causes"]] == [
        cause["cause"] for cause in two["causes"]
    ]
    for failure in two["causes"][0]["failures"]:
        assert "may not stand before" in failure["details"]
        assert failure["test"].partition("::")[0] in failure["details"]


@pytest.mark.slow
def test_a_process_that_dies_is_a_cause_that_names_its_test(site: Path) -> None:
    install(site, "subject", DIES)
    test = "test_candidates_are_the_tokens_that_may_follow_the_whole_prefix"
    done = command_line(site, "-k", test, "--processes", "2", "--json")
    assert done.returncode == 1, done.stderr
    assert "cause 1 of 1, 1 test: its process died" in done.stderr
    assert "crashed while running" in " ".join(done.stderr.split())
    assert f"  example   test_one_step.py::{test}" in done.stderr
    result = json.loads(done.stdout)
    assert result["counts"]["failed"] == 1  # though the process did not live to count it
    assert result["causes"][0]["shown"] == f"test_one_step.py::{test}"


def test_a_run_that_passes_tells_no_cause(site: Path, capfd: Capture) -> None:
    path = site / "causes.json"
    assert run("reference", tests=["test_prefix.py"], quick=True, causes=path) == 0
    assert "by cause" not in capfd.readouterr().out
    assert json.loads(path.read_text()) == []


ODD = """
from beamsieve_backends.reference import ReferenceBackend

class Silent(Exception):
    def __str__(self):
        raise ValueError("no words")

class NumpyBackend(ReferenceBackend):
    name = "subject"
    def select(self, *arguments):
        {says}
"""


def test_an_error_that_cannot_be_told_is_a_failure_like_others(site: Path, capfd: Capture) -> None:
    install(site, "subject", ODD.format(says="raise Silent"))
    assert run("subject", tests=["test_prefix.py"], quick=True) == 1
    said = capfd.readouterr().out
    assert "cause 1 of 1" in said
    assert "Silent in beamsieve_under_test_" in said
    assert "whose text cannot be made" in said


def test_control_characters_of_an_error_do_not_reach_the_terminal(
    site: Path, capfd: Capture
) -> None:
    install(site, "subject", ODD.format(says=r"raise ValueError('\x1b[2J red')"))
    assert run("subject", tests=["test_prefix.py"], quick=True) == 1
    said = capfd.readouterr().out
    assert r"ValueError: \x1b[2J red" in said
    assert "\x1b[2J" not in said


def test_what_returns_none_is_not_placed_in_pytest(site: Path, capfd: Capture) -> None:
    install(site, "subject", ODD.format(says="return None"))
    assert run("subject", tests=["test_prefix.py"], quick=True) == 1
    assert "_pytest" not in capfd.readouterr().out


def test_a_backend_that_declares_nothing_is_refused(site: Path, capfd: Capture) -> None:
    source = ODD.format(says="return None") + "    capabilities = None\n"
    install(site, "subject", source)
    assert run("subject", quick=True) == 2
    assert "capabilities of type NoneType" in capfd.readouterr().err


def test_ctrl_c_in_a_backend_is_ctrl_c(site: Path) -> None:
    install(site, "subject", ODD.format(says="raise KeyboardInterrupt"))
    record = site / "record.json"
    record.write_text('{"format": 1, "runs": {"subject": {"counts": {"passed": 99}}}}')
    words = ["-k", "test_a_prefix_begins", "--json", "--record", str(record)]
    done = command_line(site, *words)
    assert done.returncode == 130, done.stderr
    assert done.stdout == ""  # and not what an earlier run had found


@pytest.mark.parametrize("content", ["id,name\n", "[]", '{"runs": []}'])
def test_a_file_that_is_no_record_is_refused_before_the_run(
    site: Path, capfd: Capture, content: str
) -> None:
    other = site / "items.csv"
    other.write_text(content)
    assert run("reference", tests=["test_prefix.py"], quick=True, record=other) == 2
    heard = capfd.readouterr()
    assert "no record of a run" in heard.err
    assert heard.out == ""
    assert other.read_text() == content
