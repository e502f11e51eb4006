"""What tests of more than one folder need."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # what tests import of each other


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard():
    """A shell starts what it runs in the background with Ctrl-C ignored, and every child of the
    tests would inherit that, those that are sent Ctrl-C among them."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def run_interpreted():
    """Runs pytest with Triton's interpreter, which Triton must be told at its import."""

    def run(*arguments):
        finished = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
            env={**os.environ, "TRITON_INTERPRET": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 0, finished.stdout[-6000:] + finished.stderr[-2000:]
        assert " passed" in finished.stdout
        return finished.stdout

    return run
