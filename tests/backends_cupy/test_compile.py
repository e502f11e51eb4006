"""Every kernel compiles for every supported architecture, by NVRTC and without a GPU."""

from typing import Any, cast

import pytest

from beamsieve_backends.cupy_raw.sources import KERNELS, expression, source_of

try:
    from cupy.cuda import compiler
    from cupy_backends.cuda.libs import nvrtc

    nvrtc.getVersion()
except (ImportError, RuntimeError):
    compiler = nvrtc = cast("Any", None)

NUMBERS = ("float", "bfloat16", "float16")
INSTANCES = [
    *(("score_rows", number, projected) for number in NUMBERS for projected in ("true", "false")),
    *((kernel, n) for kernel in ("score_tiles", "open_tiles") for n in NUMBERS),
    *((kernel, n) for kernel in ("row_mass", "list_candidates") for n in NUMBERS),
    ("tile_slots",),
    ("select_slots",),
    ("split_float32",),
    ("add_nudge",),
    ("filter_rows",),
    ("rule_out",),
]  # fmt: skip


def test_every_kernel_file_is_compiled_here():
    assert {instance[0] for instance in INSTANCES} == {path.stem for path in KERNELS.glob("*.cu")}


@pytest.mark.skipif(compiler is None, reason="needs CuPy with NVRTC: pip install cupy-cuda13x[ctk]")
@pytest.mark.parametrize("architecture", ["80", "90", "100"])
@pytest.mark.parametrize("instance", INSTANCES, ids="-".join)
def test_it_compiles(instance, architecture):
    name = expression(*instance)
    program = nvrtc.createProgram(source_of(instance[0]), "kernel.cu", (), ())
    try:
        nvrtc.addNameExpression(program, name)
        nvrtc.compileProgram(program, ("--std=c++17", f"--gpu-architecture=sm_{architecture}"))
        assert nvrtc.getLoweredName(program, name)
        assert len(nvrtc.getCUBIN(program)) > 1000
    except nvrtc.NVRTCError:
        pytest.fail(nvrtc.getProgramLog(program))
    finally:
        nvrtc.destroyProgram(program)
