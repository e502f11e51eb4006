import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session")
def backend():
    """The CuPy backend, its kernels run by the CPU."""
    import host_device

    if host_device.COMPILER is None:
        pytest.skip("the kernels are run on the CPU by compiling them with g++, which is absent")
    return host_device.HostCupyBackend()


@pytest.fixture
def lists_stay(monkeypatch):
    """Tables keep the layout they are made in, as if a bitmap were never worth its bytes."""
    from beamsieve_backends.cupy_raw import tables

    monkeypatch.setattr(tables, "with_bitmaps", lambda table: table)
