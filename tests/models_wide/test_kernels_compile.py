"""Every kernel compiles to machine code for the GPUs that it targets; this needs no GPU."""

import os
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is installed on Linux only")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from beamsieve.models.wide import calls  # noqa: E402

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("an interpreted kernel is not compiled", allow_module_level=True)

POINTERS = {
    torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.int64: "*i64",
    torch.int32: "*i32", torch.float8_e4m3fn: "*fp8e4nv",
}  # fmt: skip


def compile_instead(architecture, compiled):
    def launch(kernel, programs, *arguments, warps=4, stages=3, **constants):
        names = [parameter.name for parameter in kernel.params]
        signature, values, aligned = {}, {}, {}
        for name, argument in zip(names, arguments, strict=False):
            if isinstance(argument, torch.Tensor):
                signature[name] = POINTERS[argument.dtype]
                aligned[(names.index(name),)] = [["tt.divisibility", 16]]
            else:
                signature[name] = "fp32" if isinstance(argument, float) else "i32"
        for name, value in constants.items():
            signature[name] = "constexpr"
            values[(names.index(name),)] = value
        source = ASTSource(kernel, signature, values, aligned)
        options = {"num_warps": warps, "num_stages": stages}
        target = GPUTarget("cuda", architecture, 32)
        made = triton.compile(source, target=target, options=options)
        assert made.asm["cubin"]
        compiled[kernel.fn.__name__] = made

    return launch


@pytest.mark.parametrize(("architecture", "dtype"), [(80, torch.float16), (90, torch.bfloat16)])
def test_all_kernels_compile(architecture, dtype, monkeypatch):
    compiled: dict[str, Any] = {}
    monkeypatch.setattr(calls, "launch", compile_instead(architecture, compiled))
    rows, heads, width, t = 64, 16, 128, 3
    product = torch.zeros(rows, 3, heads, width, dtype=dtype)
    caches = torch.zeros(2, 4, rows, heads, width, dtype=dtype)
    ids = torch.zeros(rows, 4, dtype=torch.int32)
    calls.coalesced(product[:, 0], caches[0], caches[1], t)
    calls.fused(product, caches[0], caches[1], t)
    calls.paged(product, caches[0, 0], caches[1, 0], ids, t)
    calls.in_place(product, ids, t, order=ids[:, 0])
    queries = torch.zeros(2, 256, heads, width, dtype=dtype)
    kept = torch.zeros(2, 128, 2, heads, width, dtype=dtype)
    calls.context(queries, kept[:, :, 0], kept[:, :, 1], None)
    x = torch.zeros(rows, 1024, dtype=dtype)
    calls.norm(x, x)
    if architecture == 90:
        calls.norm_quantize(x)
        kept = torch.zeros(2, 200, 2, heads, 64, dtype=dtype)  # in blocks
        few = {"ROWS": 16, "TILES": 1, "warps": 4, "stages": 1}
        calls.context(queries[..., :64], kept[:, :, 0], kept[:, :, 1], ids[:2, 0], few)
    tokens = torch.zeros(2, 32, 2, dtype=torch.int32)
    calls.advance(tokens, torch.zeros(2, 32, dtype=torch.int64), ids, ids[0], 100, x)
    asked = torch.zeros(9, 2048, dtype=dtype)
    calls.advance_paired(
        tokens, torch.zeros(2, 32, dtype=torch.int64), ids, ids[0], 100, x, asked, 3
    )
    calls.second(tokens[:, :, :1], x[:34], 4)
    calls.repeated(x[:5], x[:5], 2)
    assert set(compiled) == {
        "own_attention", "coalesced_attention", "context_attention", "norm_rows", "advance_rows",
        "second_rows", "repeat_rows",
    }  # fmt: skip
