"""CUDA sources compile, as NVRTC says without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from beamsieve_backends.cupy_raw.sources import KERNELS
from beamsieve_conformance import compile_check
from beamsieve_conformance.compile_check import (
    Compiler,
    NoCompilerError,
    check,
    instances,
    programs,
)

try:
    Compiler()
except NoCompilerError as reason:
    MISSING = str(reason)
else:
    MISSING = ""
needs_nvrtc = pytest.mark.skipif(bool(MISSING), reason=MISSING or "NVRTC is here")

SHARED = "typedef long long i64;\nstruct bfloat16 { unsigned short bits; };\n"
SHARED += "struct float16 { unsigned short bits; };\n"
GOOD = """
template <class T, bool Twice>
__global__ void __launch_bounds__(128) fill(T* out, i64 total) {
    const i64 i = blockIdx.x * 128ll + threadIdx.x;
    if (i < total) out[i] = T{};
}
__global__ void clear(int* out) { out[threadIdx.x] = 0; }
"""


def declare(folder: Path, source: str) -> dict[str, tuple[Path, tuple[str, ...]]]:
    (folder / "common.cuh").write_text(SHARED)
    (folder / "fill.cu").write_text(source)
    return {"fast": (folder, ("common.cuh", "fill.cu"))}


def test_every_instance_of_every_kernel_is_named() -> None:
    assert list(instances(GOOD)) == [
        f"fill<{number}, {twice}>"
        for number in ("float", "bfloat16", "float16")
        for twice in ("true", "false")
    ] + ["clear"]


@needs_nvrtc
def test_sources_are_joined_behind_their_shared_parts(tmp_path: Path) -> None:
    found = programs(declare(tmp_path, GOOD))
    assert [program.file for program in found] == ["fill.cu"]
    assert check(found, ["sm_90"]) == []


@needs_nvrtc
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("T{};", "T{}"),
        ("= T{};", "= total.x;"),  # wrong only once the template is instantiated for a type
        ("i64 total) {", "i64 total) { float x = nowhere;"),
        ("__global__", "__device__"),
    ],
)
def test_what_does_not_compile_is_named(tmp_path: Path, right: str, wrong: str) -> None:
    found = check(programs(declare(tmp_path, GOOD.replace(right, wrong))), ["sm_90"])
    assert len(found) == 1
    assert "fill.cu" in found[0]


def test_without_a_compiler_nothing_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compile_check, "_libraries", lambda: iter(()))
    found = programs(declare(tmp_path, GOOD))
    with pytest.raises(NoCompilerError, match="nvidia-cuda-nvrtc"):
        check(found)
    monkeypatch.setattr(compile_check, "programs", lambda: found)
    assert compile_check.main() == 2
    assert "nvidia-cuda-nvrtc" in capsys.readouterr().err


def test_where_there_is_nothing_to_compile_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compile_check, "programs", list)
    assert compile_check.main() == 0
    assert "nothing to compile" in capsys.readouterr().out


@needs_nvrtc
def test_the_sources_of_this_repository_are_found_and_one_compiles() -> None:
    # tests/backends_cupy/test_compile.py compiles all of them, for every architecture.
    found = programs()
    assert {Path(program.file).name for program in found} == {
        path.name for path in KERNELS.glob("*.cu")
    }
    assert check([min(found, key=lambda program: len(program.text))], ["sm_90"]) == []
