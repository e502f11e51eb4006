"""Backends that are installed without being installed: a folder on the path, with its metadata."""

from __future__ import annotations

from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "docs/examples/numpy-backend/src/beamsieve_numpy"
SOURCE = (EXAMPLE / "__init__.py").read_text(encoding="utf-8")


def announce(folder: Path, name: str, target: str) -> None:
    """Write the metadata of a distribution whose only entry point is the backend ``name``."""
    package = package_of(name)
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[beamsieve.backends]\n{name} = {target}\n")


def package_of(name: str) -> str:
    """The package of a backend of these tests: a name that no installed module has."""
    return f"beamsieve_under_test_{name.replace('-', '_')}"


def install(folder: Path, name: str, source: str) -> Path:
    """Put a backend's source into ``folder`` as a package of its own, and announce it."""
    package = folder / package_of(name)
    package.mkdir()
    (package / "__init__.py").write_text(source, encoding="utf-8")
    announce(folder, name, f"{package.name}:NumpyBackend")
    return package
