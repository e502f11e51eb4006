"""The kernels on the CPU."""

from pathlib import Path


def test_the_kernels_give_what_the_specification_gives(run_interpreted):
    run_interpreted(Path(__file__).parent / "interpreted")
