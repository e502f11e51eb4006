"""The spelling kernel compiles to machine code for the GPUs that it targets; no GPU is needed."""

import os
from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="Triton is installed on Linux only")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from beamsieve.models.spelling_kernel import spell_attention  # noqa: E402

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("an interpreted kernel is not compiled", allow_module_level=True)


@pytest.mark.parametrize(("architecture", "dtype"), [(80, "fp32"), (90, "bf16")])
def test_the_spelling_kernel_compiles(architecture, dtype):
    constants: dict[str, Any] = {"T": 3, "C": 2, "H": 8, "D": 32, "ROWS": 1}
    kernel: Any = spell_attention
    names = [parameter.name for parameter in kernel.params]
    signature = dict.fromkeys(names, "i32") | dict.fromkeys(constants, "constexpr")
    signature |= dict.fromkeys(names[:7], f"*{dtype}") | {"parents": "*i64", "scale": "fp32"}
    values = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, values)
    made = triton.compile(source, target=GPUTarget("cuda", architecture, 32))
    assert made.asm["cubin"]
