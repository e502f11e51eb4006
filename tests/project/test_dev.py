"""dev.py, the first thing that anyone runs."""

from __future__ import annotations

import ast
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

DEV = Path(__file__).parents[2] / "dev.py"


@pytest.fixture
def dev() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("dev", DEV)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_old_python_can_read_it_to_the_line_that_says_so():
    tree = ast.parse(DEV.read_text("utf-8"), feature_version=(3, 7))
    imported = {
        name.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert imported <= sys.stdlib_module_names


def test_it_says_so_when_no_python_is_new_enough(dev, monkeypatch, capsys):
    monkeypatch.setattr(dev, "LOWEST", (3, 99))
    monkeypatch.setenv("PATH", "")

    with pytest.raises(SystemExit) as left:
        dev.find_python()

    assert left.value.code == 2
    assert "needs Python 3.99 or later" in capsys.readouterr().err


def test_a_new_enough_python_is_taken_as_it_is(dev):
    assert dev.find_python() == sys.executable


@pytest.fixture
def calls(dev, monkeypatch, tmp_path) -> list[list[str]]:
    """What a set-up in ``tmp_path`` would run; asked for a newer pip, it fails."""
    for name in ("pyproject.toml", "constraints.txt", "dev.py"):
        (tmp_path / name).write_text(name)
    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    calls: list[list[str]] = []

    def call(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        return subprocess.CompletedProcess(command, int("pip>=26" in command))

    monkeypatch.setattr(dev, "ROOT", tmp_path)
    monkeypatch.setattr(dev, "VENV", venv)
    monkeypatch.setattr(dev, "SCRIPTS", venv / "bin")
    monkeypatch.setattr(dev, "STAMP", venv / "stamp")
    monkeypatch.setattr(dev.subprocess, "run", call)
    return calls


def test_the_set_up_is_done_once_until_what_it_depends_on_changes(
    dev, calls, monkeypatch, tmp_path
):
    (dev.SCRIPTS / "python").touch()

    dev.set_up()
    dev.set_up()
    activated = tmp_path / "python-of-venv"
    activated.symlink_to(sys.executable)
    monkeypatch.setattr(dev.sys, "executable", str(activated))
    dev.set_up()
    assert len(calls) == 1
    assert "constraints.txt" in calls[0]

    (tmp_path / "constraints.txt").write_text("changed")
    dev.set_up()
    assert len(calls) == 2


def test_a_new_environment_does_without_a_newer_pip_where_there_is_none(dev, calls):
    dev.set_up()
    venv, newer, packages = calls
    assert venv[1:3] == ["-m", "venv"]
    assert newer[-1] == "pip>=26"
    assert packages[-1] == ".[dev]"
    assert dev.STAMP.is_file()


@pytest.mark.parametrize("words", [[], ["dance"]])
def test_without_a_command_it_shows_what_there_is(words):
    done = subprocess.run(
        [sys.executable, DEV, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "python3 dev.py demo" in done.stdout
    assert all(f"there is no command {word!r}" in done.stderr for word in words)


def test_what_it_runs_keeps_its_bytecode_in_the_environment(dev, monkeypatch, tmp_path, capfd):
    """Where the surroundings ask for none, too: each start of torch would compile it anew."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    python = Path(sys.executable)
    monkeypatch.setattr(dev, "SCRIPTS", python.parent)
    monkeypatch.setattr(dev, "VENV", tmp_path)
    (tmp_path / "told.py").write_text("import sys; print(sys.pycache_prefix)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    assert dev.run(python.name, "-c", "import told") == 0

    assert capfd.readouterr().out.strip() == str(tmp_path / "bytecode")
    assert [*tmp_path.glob("bytecode/**/told.*.pyc")]


CTRL_C = """
import importlib.util, pathlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
spec = importlib.util.spec_from_file_location("dev", {dev!r})
dev = importlib.util.module_from_spec(spec)
spec.loader.exec_module(dev)
python = pathlib.Path(sys.executable)
dev.SCRIPTS = python.parent
dev.run(python.name, "-c", {child!r})
"""
CHILD = """
import pathlib, time
try:
    pathlib.Path({began!r}).touch()
    time.sleep(60)
finally:
    time.sleep(1)
    pathlib.Path({ended!r}).touch()
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no process groups to send Ctrl-C to")
def test_after_ctrl_c_it_waits_until_the_command_has_ended_its_own_processes(tmp_path):
    began, ended = tmp_path / "began", tmp_path / "ended"
    child = CHILD.format(began=str(began), ended=str(ended))
    script = CTRL_C.format(dev=str(DEV), child=child)
    running = subprocess.Popen(
        [sys.executable, "-c", script], stderr=subprocess.PIPE, start_new_session=True
    )
    while not began.exists() and running.poll() is None:
        time.sleep(0.01)

    os.killpg(running.pid, signal.SIGINT)
    _, said = running.communicate()

    assert ended.exists(), said.decode()
    assert b"KeyboardInterrupt" in said
