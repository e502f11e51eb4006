"""What tests of more than one folder need."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def run_interpreted():
    """Runs a folder's tests with Triton's interpreter, which Triton must be told at its import."""

    def run(folder):
        finished = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder],
            env={**os.environ, "TRITON_INTERPRET": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 0, finished.stdout[-6000:] + finished.stderr[-2000:]
        assert " passed" in finished.stdout

    return run
