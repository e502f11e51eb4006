"""The rules of the repository that a machine can check."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PACKAGES = [
    ROOT / path for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
]
OURS = {path.name for path in PACKAGES}
LARGEST_FILE = 1_500_000
# Array libraries, which an extra brings and a machine may lack.
OPTIONAL = {"torch", "triton", "cupy"}


def tracked() -> list[Path]:
    """The files that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def imports(path: Path) -> Iterator[str]:
    """The top-level names of everything that a Python file imports, wherever it does."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def importers(folder: str, names: set[str]) -> list[str]:
    """The files below ``folder`` that import one of ``names``."""
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in sorted(set(imports(path)) & names)
    ]


def test_no_file_names_a_path_of_one_machine():
    # Put together here, so that this file does not name one itself.
    homes = "|".join(["work", "farm", "root", "home/[a-z]", "Users", "tmp/bash"])
    pattern = re.compile(rf"(?<![\w.*~-])/({homes})/[\w.]".encode())
    found = [
        f"{path.relative_to(ROOT)}: {match[0].decode()}"
        for path in tracked()
        if (match := pattern.search(path.read_bytes()))
    ]
    assert found == []


def test_no_tracked_file_is_large():
    large = [path.name for path in tracked() if path.stat().st_size > LARGEST_FILE]
    assert large == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_every_package_says_that_it_is_typed(package):
    assert (package / "py.typed").is_file()


def test_the_specification_imports_numpy_and_nothing_else():
    allowed = sys.stdlib_module_names | {"numpy", "beamsieve_spec"}
    found = {name for path in (ROOT / "spec").rglob("*.py") for name in imports(path)}
    assert found - allowed == set()


def test_the_library_imports_no_backend_by_name():
    assert importers("src", {"beamsieve_backends"}) == []
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    assert "beamsieve_backends" not in source


def test_only_the_command_line_reaches_up_to_the_suite_and_the_benchmarks():
    found = importers("src", {"beamsieve_conformance", "beamsieve_bench", "beamsieve_spec"})
    assert [line for line in found if not line.startswith("src/beamsieve/cli/")] == []


def test_backends_import_neither_the_suite_nor_the_benchmarks():
    assert importers("backends", {"beamsieve_conformance", "beamsieve_bench"}) == []


def test_the_suite_imports_no_backend():
    assert importers("conformance", {"beamsieve_backends", "beamsieve_bench"}) == []


@pytest.mark.parametrize(
    "point",
    importlib.metadata.distribution("beamsieve").entry_points,
    ids=lambda point: point.name,
)
def test_entry_points_lead_to_what_they_name(point):
    try:
        point.load()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        assert missing in OPTIONAL
        pytest.skip(f"{missing} is not installed here")


def test_the_version_stands_in_one_place():
    version = PROJECT["project"]["version"]
    assert importlib.metadata.version("beamsieve") == version
    own = [
        path
        for path in tracked()
        if path.suffix in (".py", ".toml", ".cfg") and "docs" not in path.parts
        if re.search(rf"version\W+{re.escape(version)}", path.read_text("utf-8"))
    ]
    assert own == [ROOT / "pyproject.toml"]


def test_everything_that_is_installed_has_a_tested_version():
    requirements = list(PROJECT["project"]["dependencies"])
    for extra in PROJECT["project"]["optional-dependencies"].values():
        requirements += extra
    requirements += PROJECT["build-system"]["requires"]
    names = {re.split(r"[\s\[<>=;]", line)[0].lower() for line in requirements} - {"beamsieve"}
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    tested = {line.partition("==")[0].lower() for line in lines if "==" in line}
    # One of the two CuPy builds is installed, never both; a CUDA build of torch brings its NVRTC.
    assert names - tested - {"cupy-cuda12x", "nvidia-cuda-nvrtc"} == set()
