"""Ctrl-C in the first moments of a command: one line, one exit code, whatever is being imported."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from beamsieve import aside

COMMAND = "from beamsieve.cli import main; main()"


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.06, 0.1, 0.2, 0.4])
def test_ctrl_c_while_modules_are_imported_prints_no_traceback(delay):
    # Python names each module as its import ends: the first of those that ``main`` asks for says
    # that the command's own code runs. This command imports the largest libraries there are.
    words = [sys.executable, "-X", "importtime", "-c", COMMAND, "backends"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.split("|")[-1].strip() == "beamsieve.cli":
                break
        next(process.stderr)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        code = process.wait(30)
    said = [line for line in rest.splitlines() if not line.startswith("import time:")]
    assert (code, said) == (130, ["beamsieve: interrupted; no half-written file is left."])


def test_ctrl_c_that_the_caller_ignores_stays_ignored():
    # As ``nohup`` does, and a shell for what it runs in the background.
    words = [sys.executable, "-c", f"import os, signal; {COMMAND}", "--version"]
    done = subprocess.run(
        words,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0


def test_the_library_leaves_ctrl_c_alone():
    code = "import signal, beamsieve.cli; from beamsieve.cli import app; import beamsieve as bs; "
    check = "bs.Engine; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    subprocess.run([sys.executable, "-c", code + check], check=True)


@pytest.mark.parametrize("name", ["touch", "stat", "replace", "unlink"])
def test_ctrl_c_in_the_middle_of_writing_aside_leaves_nothing(tmp_path, monkeypatch, name):
    target = tmp_path / "file"
    call = getattr(Path, name)
    left = [1]

    def interrupted(self, *args, **kwargs):
        outcome = call(self, *args, **kwargs) if name == "touch" else None
        if self.name.endswith(".part") and left:
            left.clear()
            raise KeyboardInterrupt
        return call(self, *args, **kwargs) if name != "touch" else outcome

    with monkeypatch.context() as patched:
        patched.setattr(Path, name, interrupted)
        with pytest.raises(KeyboardInterrupt), aside.written_aside(target) as path:
            path.write_text("half")
    aside.remove_left()  # as at the end of the process
    assert [path.name for path in tmp_path.iterdir()] in ([], ["file"])
    assert not aside._BEGUN


def test_a_fork_leaves_the_files_of_its_parent(tmp_path, monkeypatch):
    with aside.written_aside(tmp_path / "file") as path:
        with monkeypatch.context() as patched:
            patched.setattr("os.getpid", lambda: 1)
            aside.remove_left()
        assert path.exists()
        path.write_text("whole")
    assert (tmp_path / "file").read_text() == "whole"
