"""Every kernel compiles to machine code for the GPUs that it targets; this needs no GPU."""

import os

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is installed on Linux only")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from beamsieve.interface import Projection, StepInputs  # noqa: E402
from beamsieve_backends.triton_slots import step as planning  # noqa: E402
from beamsieve_backends.triton_slots.tables import DeviceTable, DeviceTables  # noqa: E402

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("an interpreted kernel is not compiled", allow_module_level=True)

POINTERS = {
    torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.int64: "*i64",
    torch.int32: "*i32", torch.int16: "*i16", torch.int8: "*i8",
}  # fmt: skip
D, V, M, B = 256, 2048, 64, 2


def compile_instead(architecture, compiled):
    def launch(kernel, grid, *arguments, warps=4, stages=3, registers=None, **constants):
        early = architecture >= 90
        constants["PDL"] = early
        names = [parameter.name for parameter in kernel.params]
        signature, values = {}, {}
        for name, argument in zip(names, arguments, strict=False):
            if isinstance(argument, torch.Tensor):
                signature[name] = POINTERS[argument.dtype]
            else:
                signature[name] = "i32"
        for name, value in constants.items():
            signature[name] = "constexpr"
            values[(names.index(name),)] = value
        options = {"num_warps": warps, "num_stages": stages, "launch_pdl": early}
        if registers is not None:
            options["maxnreg"] = registers
        source = ASTSource(kernel, signature, values)
        made = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
        assert made.asm["cubin"]
        compiled.add(kernel.fn.__name__)

    return launch


def table(step, dense):
    words = V // 64
    return DeviceTable(
        step, V, 10, 20, 9, torch.zeros(11, dtype=torch.int32),
        None if dense else torch.zeros(20, dtype=torch.int16),
        torch.zeros(10, words, dtype=torch.int64) if dense else None,
        torch.zeros(10, words, dtype=torch.int16) if dense else None,
        None, np.arange(0, 9 * 4097, 9), 2.0,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("architecture", [80, 90])
def test_all_kernels_compile(architecture, dtype, monkeypatch):
    compiled: set[str] = set()
    monkeypatch.setattr(planning, "launch", compile_instead(architecture, compiled))
    monkeypatch.setattr(planning, "THIN_FROM", 0)
    tables = DeviceTables((table(1, True), table(2, True), table(3, False)), ragged=False)
    steps: list[tuple[int, int, Projection | None]]
    steps = [(1, 1, None), (2, M, None), (3, M, "selective"), (3, M, "full")]
    for step, places, projection in steps:
        beams = planning.StepArrays(
            torch.zeros(B, places), torch.zeros(B, places, dtype=torch.int64),
            torch.zeros(B, places, dtype=torch.bool),
            torch.zeros(B, places, step - 1, dtype=torch.int32), distinct=True,
        )  # fmt: skip
        inputs = StepInputs(
            32, hidden=torch.zeros(B, places, D, dtype=dtype),
            head=torch.zeros(V, D, dtype=dtype), projection=projection,
        )  # fmt: skip
        planning.run_step(tables, beams, step, inputs, "catalog")
    expected = {
        "statistics", "choose_tokens", "choose_cells", "list_groups", "score_groups",
        "settle_candidates", "score_slots", "thin_candidates", "row_bitmaps", "write_best",
    }  # fmt: skip
    assert compiled == expected | ({"split_rows"} if dtype == torch.float32 else set())
