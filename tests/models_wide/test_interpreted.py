"""The kernels on the CPU."""

from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is installed on Linux only")


def test_the_kernels_give_what_their_laws_give(run_interpreted):
    run_interpreted(Path(__file__).parent / "interpreted")
