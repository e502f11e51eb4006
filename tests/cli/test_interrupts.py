"""Ctrl-C in the first moments of a command: one line, one exit code, whatever is being imported."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

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
