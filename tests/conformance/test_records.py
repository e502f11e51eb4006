"""Records of runs on GPUs: no kernel may change, or be new, without a run on a real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from beamsieve_conformance.records import (
    check_records,
    installed_kernels,
    main,
    read_kernel_sources,
    sha256,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with one kernel."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "kernels.cu").write_text("__global__ void step() {}\n")
    return folder


def write(folder: Path, package: Path, **changes: Any) -> Path:
    """A record of one run of the backend "fast", with ``changes``."""
    folder.mkdir(exist_ok=True)
    run = {
        "counts": {"passed": 500, "failed": 0, "deviates": 0, "not run": 0},
        "partial": "",
        "kernels": {"kernels.cu": sha256(package / "kernels.cu")},
    } | changes
    (folder / "gpu.json").write_text(json.dumps({"format": 1, "runs": {"fast": run}}))
    return folder


def problems(folder: Path, package: Path) -> list[str]:
    return check_records(folder, {"fast": (package, ("kernels.cu",)), "host": (package, ())})


def test_a_tested_kernel_is_fine(tmp_path: Path, package: Path) -> None:
    assert problems(write(tmp_path / "records", package), package) == []


def test_line_ends_of_the_checkout_do_not_matter(tmp_path: Path, package: Path) -> None:
    folder = write(tmp_path / "records", package)
    (package / "kernels.cu").write_bytes(b"__global__ void step() {}\r\n")
    assert problems(folder, package) == []


def test_a_changed_kernel_is_named(tmp_path: Path, package: Path) -> None:
    folder = write(tmp_path / "records", package)
    (package / "kernels.cu").write_text("__global__ void step() { return; }\n")
    (found,) = problems(folder, package)
    assert found.startswith("gpu.json: fast: kernels.cu has changed since its record")


def test_a_kernel_without_record_is_named(tmp_path: Path, package: Path) -> None:
    (found,) = problems(tmp_path / "records", package)
    assert "fast" in found
    assert "--record" in found


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"counts": {"passed": 499, "failed": 1}}, "failed 1"),
        ({"counts": {"passed": 0, "failed": 0}}, "passed 0"),
        ({"partial": "-k order"}, "-k order"),
        ({"kernels": {}}, "kernels.cu"),
    ],
)
def test_a_record_that_proves_too_little_is_named(
    tmp_path: Path, package: Path, changes: dict[str, Any], said: str
) -> None:
    (found,) = problems(write(tmp_path / "records", package, **changes), package)
    assert said in found


def test_kernels_are_read_where_the_backend_cannot_be_imported(tmp_path: Path) -> None:
    source = tmp_path / "backend.py"
    source.write_text(
        "import no_such_library\n"
        "class Other:\n    kernel_sources = ('other.cu',)\n"
        "class Fast(Backend):\n    name = 'fast'\n"
        "    kernel_sources: ClassVar[tuple[str, ...]] = ('common.cuh', 'step.cu')\n"
        "class Plain(Backend):\n    name = 'plain'\n"
    )
    assert read_kernel_sources([source], "Fast") == ("common.cuh", "step.cu")
    assert read_kernel_sources([source], "Plain") == ()
    with pytest.raises(LookupError, match="Missing"):
        read_kernel_sources([source], "Missing")


def test_every_declared_kernel_is_a_file() -> None:
    found = installed_kernels()
    assert set(found) >= {"reference", "torch"}
    for folder, sources in found.values():
        assert all((folder / source).is_file() for source in sources)


def test_every_kernel_of_this_repository_is_recorded() -> None:
    assert check_records(ROOT / "conformance" / "records") == []


def test_the_check_is_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err
    (tmp_path / "gpu.json").write_text(
        json.dumps(
            {
                "runs": {
                    "torch": {
                        "counts": {"passed": 1, "failed": 3},
                        "partial": "",
                        "kernels": {},
                    }
                }
            }
        )
    )
    assert main([str(tmp_path)]) == 1
    assert "failed 3" in capsys.readouterr().err
