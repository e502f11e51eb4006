"""The spelling kernel compiles to machine code for the GPUs that it targets; no GPU is needed."""

import os
from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="Triton is installed on Linux only")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from beamsieve.models.spelling_kernel import (  # noqa: E402
    add_norm,
    first_attention,
    open_attention,
    spell_attention,
)

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("an interpreted kernel is not compiled", allow_module_level=True)


ATTENTION = {"T": 3, "C": 2, "H": 8, "D": 32, "ROWS": 1}
ROWS = {"E": 256, "ROWS": 4, "EPSILON": 1e-5}
KERNELS: list[tuple[Any, dict[str, Any], dict[str, str]]] = [
    (spell_attention, {**ATTENTION, "LAST": False}, {"parents": "*i32"}),
    (first_attention, ATTENTION, {"codes": "*i32", "starts": "*i64"}),
    (open_attention, {"M": 2, "H": 8, "D": 32, "ROWS": 8}, {}),
    (add_norm, ROWS, {}),
]


@pytest.mark.parametrize(("architecture", "dtype"), [(80, "fp32"), (90, "bf16")])
@pytest.mark.parametrize(("kernel", "constants", "types"), KERNELS)
def test_a_spelling_kernel_compiles(architecture, dtype, kernel, constants, types):
    names = [parameter.name for parameter in kernel.params]
    counts = {name for name in names if name.isupper()}
    signature = {name: "i32" if name in counts else f"*{dtype}" for name in names}
    signature |= dict.fromkeys(constants, "constexpr") | types
    signature |= {"scale": "fp32"} if "scale" in names else {}
    values = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, values)
    made = triton.compile(source, target=GPUTarget("cuda", architecture, 32))
    assert made.asm["cubin"]
