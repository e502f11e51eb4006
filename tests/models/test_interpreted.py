"""The spelling kernel on the CPU."""

from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is installed on Linux only")


def test_the_spelling_kernel_gives_what_the_plain_layers_give(run_interpreted):
    run_interpreted(Path(__file__).parent / "interpreted")
