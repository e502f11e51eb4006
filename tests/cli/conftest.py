"""A catalog in several formats, and the command line called in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner


@dataclass
class Outcome:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def complaint(self) -> str:
        """The one line that a failed command prints on stderr."""
        lines = self.stderr.splitlines()
        assert len(lines) == 1, self.stderr
        assert lines[0].startswith("beamsieve: "), self.stderr
        return lines[0].removeprefix("beamsieve: ")


Run = Callable[..., Outcome]


@pytest.fixture
def run() -> Run:
    """Call ``beamsieve`` with these words."""
    from beamsieve.cli import app

    def call(*words: object) -> Outcome:
        result = CliRunner().invoke(app, [str(word) for word in words])
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture(scope="session")
def sids() -> np.ndarray:
    """500 semantic IDs of three levels, some of them twice."""
    return np.random.default_rng(7).integers(0, 12, (500, 3))


@pytest.fixture
def catalog(tmp_path: Path, sids: np.ndarray) -> Path:
    """The catalog as CSV, with titles."""
    path = tmp_path / "catalog.csv"
    rows = [f"item-{n},{' '.join(map(str, sid))},Title {n}" for n, sid in enumerate(sids)]
    path.write_text("\n".join(["item,sid,title", *rows]) + "\n")
    return path


@pytest.fixture
def index(tmp_path: Path, catalog: Path, run: Run) -> Path:
    """The index of that catalog."""
    path = tmp_path / "index.safetensors"
    assert run("build", catalog, "-o", path).code == 0
    return path
