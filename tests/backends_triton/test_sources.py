"""What a GPU record vouches for."""

from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is installed on Linux only")

import beamsieve_backends
from beamsieve_backends.triton_slots import TritonBackend


def test_every_file_that_holds_a_kernel_is_hashed():
    packages = Path(next(iter(beamsieve_backends.__path__)))
    kernels = [
        path.relative_to(packages).as_posix()
        for path in (packages / "triton_slots").glob("*.py")
        if "@triton.jit" in path.read_text("utf-8")
    ]
    assert sorted(TritonBackend.kernel_sources) == sorted(kernels)
