"""The conformance suite against the kernels as the CPU runs them."""

import os
import subprocess
import sys
from pathlib import Path

import host_device
import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(host_device.COMPILER is None, reason="needs g++ to run kernels on the CPU")
@pytest.mark.parametrize(
    "module",
    [
        "test_one_step.py",
        "test_order.py",
        "test_prepared_heads.py",
        "test_tables.py",
        "test_targeting.py",
    ],
)
def test_conformance(tmp_path, module):
    """A distribution made for the occasion announces the emulated backend."""
    entry = tmp_path / "hostcupy-0.0.dist-info"
    entry.mkdir()
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: hostcupy\nVersion: 0.0\n")
    (entry / "entry_points.txt").write_text(
        "[beamsieve.backends]\ncupyhost = host_device:HostCupyBackend\n"
    )
    paths = [str(tmp_path), str(HERE), os.environ.get("PYTHONPATH", "")]
    code = (
        "import sys; from beamsieve_conformance.runner import run; "
        f"sys.exit(run('cupyhost', quick=True, tests=[{module!r}], options=['-q', '-x']))"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout[-4000:] + outcome.stderr[-2000:]
