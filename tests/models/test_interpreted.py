"""The spelling kernel on the CPU: Triton must know at its import that it is to interpret it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is installed on Linux only")

HERE = Path(__file__).parent


def test_the_spelling_kernel_gives_what_the_plain_layers_give():
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / "interpreted"],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-6000:] + finished.stderr[-2000:]
    assert " passed" in finished.stdout
