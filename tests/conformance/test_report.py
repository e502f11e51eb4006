"""What a run prints, writes and returns."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamsieve_conformance import run

from .out_of_tree import SOURCE, announce, install

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, for backends to be put into."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(folder)):
            del sys.modules[name]  # the next test has another backend of the same name


def test_the_header_says_what_is_tested_and_how(site: Path, capfd: Capture) -> None:
    install(site, "plain", SOURCE)
    assert run("plain", tests=["test_prefix.py"], quick=True) == 0
    report = capfd.readouterr().out
    for line in (
        "backend: plain (plain:cpu)",
        "device: cpu",
        "versions: beamsieve ",
        "settings: quick, 12 examples per property",
        "declares: deterministic, dtype: float16, dtype: float32",
        "tolerance: float32 1e-06",
        "deviations: 0 known",
    ):
        assert line in report


def test_the_summary_counts_by_capability(site: Path, capfd: Capture) -> None:
    install(site, "plain", SOURCE)
    assert run("plain", tests=["test_one_step.py"], quick=True) == 0
    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert ["normalizer:", "all", "9", "-", "-", "-"] in lines
    assert any(line[:4] == ["dtype:", "bfloat16", "not", "declared"] for line in lines)


def test_pytest_runs_it_too_from_anywhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "beamsieve_conformance"]
    command += ["--backend", "reference", "--quick", "-k", "nan_never_wins"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "backend: reference (reference:cpu)" in done.stdout
    assert "3 passed" in done.stdout


def test_pytest_says_what_it_needs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "beamsieve_conformance"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "--backend NAME" in done.stderr


def test_failures_give_exit_code_1(site: Path, capfd: Capture) -> None:
    install(site, "wrong", SOURCE.replace('if normalize == "all":', "if False:"))
    assert run("wrong", tests=["test_one_step.py"], quick=True) == 1
    assert "normalizer: all" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-such-backend", ["no-such-backend", "not installed", "reference"]),
        ("reference:cuda:7", ["cuda"]),
        ("reference?colour=red", ["colour"]),
    ],
)
def test_a_backend_that_cannot_be_opened_is_one_line(
    name: str, words: list[str], capfd: Capture
) -> None:
    assert run(name) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1
    for word in words:
        assert word in said.err


def test_a_backend_whose_import_fails_shows_its_own_error(site: Path, capfd: Capture) -> None:
    install(site, "unlucky", "raise OSError('libdevice.so.1 is missing')\n")
    assert run("unlucky") == 2
    said = capfd.readouterr().err
    assert "libdevice.so.1 is missing" in said
    assert len(said.strip().splitlines()) == 1


def test_a_backend_that_is_no_backend_is_refused(site: Path, capfd: Capture) -> None:
    announce(site, "odd", "pathlib:Path")
    assert run("odd") == 2
    assert "pathlib:Path" in capfd.readouterr().err


def test_a_keyword_that_matches_nothing_is_refused(capfd: Capture) -> None:
    assert run("reference", keyword="no_such_test", options=["-q"]) == 2
    assert "no_such_test" in capfd.readouterr().err


def test_what_is_not_declared_is_tested_for_its_refusal(site: Path, capfd: Capture) -> None:
    source = SOURCE.replace(
        'dtypes=("float32", "float16"),',
        'dtypes=("float32",), normalizers=("catalog",), guidance=(), variable_length=False, '
        "deterministic=False, largest_width=50, largest_codebook=300,",
    )
    assert source != SOURCE
    install(site, "modest", source)
    tests = [f"test_{name}.py" for name in ("refusals", "one_step", "candidates", "beams", "batch",
                                            "tables", "vectors")]  # fmt: skip
    assert run("modest", quick=True, tests=tests, options=["-q"]) == 0
    report = capfd.readouterr().out
    for name in (
        "dtype: float16",
        "normalizer: all",
        "guidance: candidates",
        "variable length",
        "deterministic",
        "width above 50",
        "codebook above 300",
    ):
        assert any(
            line.startswith(name) and "not declared" in line for line in report.splitlines()
        ), name


def test_a_backend_that_keeps_one_beam_may_conform(site: Path) -> None:
    source = SOURCE.replace(
        'dtypes=("float32", "float16"),', 'dtypes=("float32",), largest_width=1,'
    )
    install(site, "greedy", source)
    tests = ["test_properties.py", "test_refusals.py", "test_search.py"]
    assert run("greedy", quick=True, tests=tests) == 0


# Deviations


def entry(test: str, raises: str = "AssertionError", kind: str = "notyet") -> str:
    return (
        f'[[deviation]]\ntest = "{test}"\nkind = "{kind}"\n'
        f'reason = "said so"\nraises = "{raises}"\n'
    )


NAN = "test_awkward_numbers.py::test_nan_never_wins"
NAN_WINS = SOURCE.replace(
    "return np.where(np.isnan(logits) | (logits == np.inf), -np.inf, logits)",
    "return np.nan_to_num(logits, nan=50.0, posinf=-np.inf, neginf=-np.inf)",
)


def deviates(site: Path, source: str, text: str, test: str = NAN) -> int:
    (install(site, "deviant", source) / "beamsieve_deviations.toml").write_text(text)
    return run("deviant", tests=[test])


def test_a_known_deviation_passes_and_is_listed(site: Path, capfd: Capture) -> None:
    assert deviates(site, NAN_WINS, entry(NAN)) == 0
    report = capfd.readouterr().out
    assert "deviations: 1 known" in report
    assert "deviates: test_awkward_numbers.py::test_nan_never_wins[all]: notyet: said so" in report


def test_a_deviation_whose_test_passes_fails(site: Path, capfd: Capture) -> None:
    assert deviates(site, SOURCE, entry(NAN)) == 1
    assert "XPASS(strict)" in capfd.readouterr().out


def test_a_deviation_that_fails_otherwise_fails(site: Path, capfd: Capture) -> None:
    assert deviates(site, NAN_WINS, entry(NAN, raises="BackendError")) == 1
    assert "3 failed" in capfd.readouterr().out


def test_a_deviation_that_matches_no_test_fails(site: Path, capfd: Capture) -> None:
    gone = entry("test_awkward_numbers.py::test_that_was_renamed")
    assert deviates(site, NAN_WINS, entry(NAN) + gone, test="test_awkward_numbers.py") == 1
    assert "matches no test" in capfd.readouterr().out


def test_a_deviation_may_name_one_parameter(site: Path, capfd: Capture) -> None:
    assert deviates(site, NAN_WINS, entry(f"{NAN}[all]")) == 1
    assert "2 failed" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[deviation]\n", "deviations.toml"),
        ("[[known]]\n", "only [[deviation]]"),
        ('[[deviation]]\ntest = "x"\n', "entry 1"),
        (entry(NAN, kind="someday"), "someday"),
        (entry(NAN, raises="NoSuchError"), "NoSuchError"),
        (entry(NAN, raises="KeyboardInterrupt"), "KeyboardInterrupt"),
        (entry(NAN, raises="Exception"), "every failure would be"),
        (entry(NAN).replace("said so", ""), "entry 1"),
    ],
)
def test_a_deviations_file_that_is_wrong_is_refused(
    site: Path, capfd: Capture, text: str, said: str
) -> None:
    assert deviates(site, SOURCE, text) == 2
    assert said in capfd.readouterr().err


# Records


def test_a_record_holds_device_versions_counts_and_hashes(site: Path, tmp_path: Path) -> None:
    source = SOURCE.replace(
        'requires = "pip', 'kernel_sources = ("__init__.py",)\n    requires = "pip'
    )
    install(site, "recorded", source)
    path = tmp_path / "records" / "here.json"
    for name in ("recorded", "reference"):
        assert run(name, tests=["test_prefix.py"], record=path, options=["-q"]) == 0
    record = json.loads(path.read_text())
    assert list(record["runs"]) == ["recorded", "reference"]
    found = record["runs"]["recorded"]
    assert found["device"] == "cpu"
    assert {"beamsieve", "python", "numpy"} <= set(found["versions"])
    assert found["counts"]["passed"] >= 10
    assert found["counts"]["failed"] == 0
    assert found["capabilities"]["every backend"]["passed"] >= 5
    assert len(found["kernels"]["__init__.py"]) == 64
    assert "test_prefix.py" in found["partial"]


def test_a_record_shows_failures(site: Path, tmp_path: Path) -> None:
    install(site, "wrong", NAN_WINS)
    path = tmp_path / "here.json"
    assert run("wrong", tests=[NAN], record=path, options=["-q"]) == 1
    assert json.loads(path.read_text())["runs"]["wrong"]["counts"]["failed"] == 3
