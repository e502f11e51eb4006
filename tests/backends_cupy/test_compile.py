"""Every kernel compiles for every supported architecture, by NVRTC and without a GPU.

To machine code for one of them, and to PTX, which is where sources of one architecture differ from
another's, for the rest: ``python -m beamsieve_conformance.compile_check`` goes all the way for all.
"""

from __future__ import annotations

import re

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

AS_TEXT = "compute_100"
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


FOR = [name if name == "sm_90" else name.replace("sm_", "compute_") for name in ARCHITECTURES]


@pytest.mark.parametrize("architecture", FOR)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.file)
def test_it_compiles(program: Program, architecture: str) -> None:
    problem, code = COMPILER.compile(program, architecture)
    assert problem == ""
    if architecture == MEASURED:
        stacks = stack_bytes(code)
        assert len(stacks) == len(program.kernels)
        assert max(stacks.values()) <= STACK_BYTES, stacks
    if architecture == AS_TEXT:
        assert_waits_first(code.decode(), len(program.kernels))


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


def test_products_by_warp_groups_compile_for_hopper() -> None:
    """With their own instructions, and without spills."""
    text = warp_groups.text_of("bfloat16", "true")
    text += "#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)\n#error\n#endif\n"
    program = Program("cupy", "multiply_tiles.cu", text, ("entry",))
    problem, code = COMPILER.compile(program, "sm_90a")
    assert problem == ""
    assert stack_bytes(code) == {"entry": 0}
