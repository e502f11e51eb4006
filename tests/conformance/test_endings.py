"""A backend that ends a test, the session or the process has not passed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from beamsieve_conformance import run
from beamsieve_conformance.runner import os_exit_is_a_failure

from .out_of_tree import install

Capture = pytest.CaptureFixture[str]
ENDS = """
import os, unittest
import pytest
from beamsieve_backends.reference import ReferenceBackend
from beamsieve_conformance.subject import NotDeclared

class NumpyBackend(ReferenceBackend):
    name = "subject"
    def select(self, *arguments):
        {says}
"""
CAPABILITIES = "return None\n    capabilities = property(lambda self: {says})"


@pytest.mark.parametrize(
    "says",
    [
        "pytest.skip('no GPU')",
        "pytest.importorskip('no_such_module')",
        "raise unittest.SkipTest('no GPU')",
        "raise NotDeclared('width above 1')",
        "pytest.xfail('it is known')",
        "pytest.exit('enough', returncode=0)",
        "raise SystemExit(0)",
    ],
)
def test_a_backend_that_leaves_its_test_fails_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture, says: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = f"ends-{abs(hash(says))}"  # a module that no other test has imported
    install(tmp_path, name, ENDS.format(says=says))
    causes = tmp_path / "causes.json"
    assert run(name, tests=["test_prefix.py"], quick=True, causes=causes) == 1
    told = json.loads(causes.read_text(encoding="utf-8"))
    assert sum(len(cause["failures"]) for cause in told) == 10  # every test that takes a step
    assert "(select)" in told[0]["failures"][0]["place"]
    assert "skipped" not in capfd.readouterr().out.splitlines()[-1]


def test_tests_that_the_suite_itself_leaves_are_no_failures(capfd: Capture) -> None:
    tests = ["test_arrays.py", "test_refusals.py"]
    assert run("reference", tests=tests, quick=True) == 0
    assert "failed," not in capfd.readouterr().out


def test_a_backend_that_ends_as_it_says_what_it_can_do_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "silent", ENDS.format(says=CAPABILITIES.format(says="exit(0)")))
    assert run("silent", quick=True) == 2
    said = capfd.readouterr().err
    assert "'silent' cannot say what it can do: SystemExit: 0" in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("source", "where"),
    [
        (ENDS.format(says="os._exit(0)"), " in test_prefix.py::test_"),
        (ENDS.format(says=CAPABILITIES.format(says="os._exit(0)")), "."),
    ],
    ids=["in a step", "as it is opened"],
)
def test_a_process_that_the_backend_ends_has_failed(
    tmp_path: Path, source: str, where: str
) -> None:
    install(tmp_path, "ends", source)
    call = "import sys; from beamsieve_conformance import run; "
    call += "sys.exit(run('ends', tests=['test_prefix.py'], quick=True))"
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", call],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 1
    assert f"beamsieve: The backend ended this process{where}" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process at once")
def test_sigterm_ends_the_run_and_not_one_test(tmp_path: Path) -> None:
    says = "open('begun', 'a').close(); [__import__('time').sleep(0.01) for _ in range(6000)]"
    install(tmp_path, "slow", ENDS.format(says=says))
    call = "from beamsieve.cli.commands import run; run()"
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    process = subprocess.Popen(
        [sys.executable, "-c", call, "conformance", "slow", "--quick", "-k", "test_prefix"],
        stdout=subprocess.DEVNULL,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
        assert process.wait(30) == 143
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children of this kind are Unix's")
def test_a_child_may_end_as_it_likes() -> None:
    with os_exit_is_a_failure():
        child = os.fork()
        if not child:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def test_a_message_without_end_is_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    says = "raise ValueError('wrong ' + 'x' * 300_000 + ' here')"
    install(tmp_path, "wordy", ENDS.format(says=says))
    causes = tmp_path / "causes.json"
    assert run("wordy", tests=["test_prefix.py"], quick=True, causes=causes) == 1
    assert "ValueError" in capfd.readouterr().out
    (told,) = json.loads(causes.read_text(encoding="utf-8"))
    for failure in told["failures"]:
        assert len(json.dumps(failure)) < 60_000
        assert failure["got"].startswith("ValueError: wrong xxx")
        assert failure["got"].endswith("xxx here")
