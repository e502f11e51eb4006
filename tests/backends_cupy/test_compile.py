"""Every kernel compiles for every supported architecture, by NVRTC and without a GPU.

To machine code for one of them, and to PTX, which is where sources of one architecture differ from
another's, for the rest: ``python -m beamsieve_conformance.compile_check`` goes all the way for all.
That PTX is hardly optimized, which would take five times as long and refuses no source.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import astuple

import pytest
from machine_code import stack_bytes

from beamsieve_backends.cupy_raw import warp_groups
from beamsieve_backends.cupy_raw.sources import KERNELS
from beamsieve_conformance.compile_check import (
    ARCHITECTURES,
    Compiler,
    NoCompilerError,
    Program,
    programs,
)

SHARED = (
    "common.cuh",
    "select.cuh",
    "narrow.cuh",
    "bound.cuh",
    "table.cuh",
    "step.cuh",
    "opened.cuh",
    "slots.cuh",
    "rows.cuh",
    "eight.cuh",
    "one_beam.cuh",
    "row_products.cuh",
    "row_choice.cuh",
    "words.cuh",
    "scored.cuh",
    "cluster.cuh",
    "pool.cuh",
    "pooled.cuh",
    "pieces.cuh",
    "sixteens.cuh",
    "halves.cuh",
    "tile_sums.cuh",
    "wgmma.cuh",
)
"""Shared parts in the order in which each may need the ones before it."""
PROGRAMS = programs(
    {"cupy": (KERNELS, (*SHARED, *sorted(path.name for path in KERNELS.glob("*.cu"))))}
)

MEASURED, STACK_BYTES = "sm_90", 160
"""No kernel uses more local memory than a few spilled registers, where speed is measured."""

try:
    COMPILER = Compiler()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)


def test_every_kernel_file_is_compiled_here() -> None:
    assert {program.file for program in PROGRAMS} == {path.name for path in KERNELS.glob("*.cu")}
    assert {path.name for path in KERNELS.glob("*.cuh")} == set(SHARED)
    assert all(program.kernels for program in PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.file)
def test_it_compiles_where_speed_is_measured(program: Program) -> None:
    problem, code, text = COMPILER.compile(program, MEASURED)
    assert problem == ""
    stacks = stack_bytes(code)
    assert len(stacks) == len(program.kernels)
    assert max(stacks.values()) <= STACK_BYTES, stacks
    assert_waits_first(text, len(program.kernels))


def assert_waits_first(text: str, kernels: int) -> None:
    """Kernels begin while the one ahead of them runs: none may touch device memory before it has
    waited for that one, and none may forget to."""
    entries = re.findall(r"\.entry [^{]*\{(.*?)\n\}", text, re.DOTALL)
    assert len(entries) == kernels
    for body in entries:
        before, waits, _ = body.partition("griddepcontrol.wait")
        assert waits
        touched = re.findall(r"\b(?:ld|st|atom|red|cp)\.\S+|\bcall\b", before)
        assert [one for one in touched if not one.startswith(("ld.param", "st.shared"))] == []


def test_a_kernel_that_reads_before_it_waits_is_found() -> None:
    begins = 'extern "C" __global__ void f(int* x) { int y = 1;'
    wait = 'asm volatile("griddepcontrol.wait;" ::: "memory");'
    for body in (f"{wait} x[0] = y; }}", f"y = x[1]; {wait} x[0] = y; }}", "x[0] = y; }"):
        compiled = COMPILER.compile(Program("", "f.cu", begins + body, ("f",)), MEASURED)
        assert compiled.problem == ""
        if body.startswith(wait):
            assert_waits_first(compiled.text, 1)
        else:
            with pytest.raises(AssertionError):
                assert_waits_first(compiled.text, 1)


# In a process of its own: NVRTC makes other machine code once it was told not to optimize.
COMPILE_HASTILY = """
import json, sys
from beamsieve_conformance import compile_check
compile_check.OPTIONS += ("--Ofast-compile=max",)
found = [compile_check.Program(*given) for given in json.load(sys.stdin)]
sys.exit("\\n".join(compile_check.check(found, sys.argv[1:])) or 0)
"""


def compile_for_others(found: list[Program]) -> subprocess.CompletedProcess[str]:
    """Ends with 0, or with what NVRTC says against the sources."""
    others = [name.replace("sm_", "compute_") for name in ARCHITECTURES if name != MEASURED]
    return subprocess.run(
        [sys.executable, "-c", COMPILE_HASTILY, *others],
        input=json.dumps([astuple(program) for program in found]),
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_kernel_compiles_for_the_other_architectures() -> None:
    done = compile_for_others(PROGRAMS)
    assert done.returncode == 0, done.stderr


def test_what_one_architecture_refuses_is_found() -> None:
    text = "__global__ void f() {\n#if __CUDA_ARCH__ == 1000\nnowhere();\n#endif\n}"
    done = compile_for_others([Program("", "f.cu", text, ("f",))])
    assert done.returncode == 1
    assert done.stderr.startswith("f.cu for compute_100:\n")


def test_products_by_warp_groups_compile_for_hopper() -> None:
    """With their own instructions, and without spills."""
    text = warp_groups.text_of("bfloat16", "true", "false")
    text += "#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)\n#error\n#endif\n"
    program = Program("cupy", "multiply_tiles.cu", text, ("entry",))
    problem, code, _ = COMPILER.compile(program, "sm_90a")
    assert problem == ""
    assert stack_bytes(code) == {"entry": 0}
