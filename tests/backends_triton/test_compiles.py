"""Every kernel compiles to machine code for the GPUs that it targets; this needs no GPU."""

import os

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is installed on Linux only")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from beamsieve.catalog import Catalog  # noqa: E402
from beamsieve.index import Index  # noqa: E402
from beamsieve.index.layouts import make_table  # noqa: E402
from beamsieve.interface import Projection, StepInputs  # noqa: E402
from beamsieve.targeting import Attribute  # noqa: E402
from beamsieve_backends.triton_slots import call, full, matchers, selective  # noqa: E402
from beamsieve_backends.triton_slots import step as planning  # noqa: E402
from beamsieve_backends.triton_slots.tables import (  # noqa: E402
    DeviceTable,
    DeviceTables,
    load_table,
)
from beamsieve_backends.triton_slots.tuning import TUNING  # noqa: E402

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("an interpreted kernel is not compiled", allow_module_level=True)

POINTERS = {
    torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.int64: "*i64",
    torch.int32: "*i32", torch.int16: "*i16", torch.int8: "*i8",
}  # fmt: skip
D, V, M, B = 256, 2048, 64, 2


def compile_instead(architecture, compiled, wanted):
    seen = set()

    def launch(kernel, grid, *arguments, warps=4, stages=3, registers=None, **constants):
        if kernel.fn.__name__ not in wanted:
            return
        # What a kernel does depends on its yes-or-no constants; sizes of blocks repeat it.
        way = (kernel.fn.__name__, *sorted(n for n, value in constants.items() if value is True))
        if way in seen:
            return
        seen.add(way)
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


def table(step, layout, vocabulary=V, rows=40, most=30):
    """A table of ``rows`` rows with 1 to ``most`` tokens each."""
    draw = np.random.default_rng(step)
    degrees = draw.integers(1, most + 1, rows)
    tokens = np.concatenate([np.sort(draw.permutation(vocabulary)[:n]) for n in degrees])
    starts = np.concatenate([[0], np.cumsum(degrees)])
    made = make_table(step, vocabulary, starts, tokens.astype(np.uint16), layout)
    return load_table(made, None, torch.device("cpu"))


def targeting():
    """What a batch asks for, of an index with every kind of test."""
    index = Index.build(
        Catalog.from_arrays(
            [[0], [1]], items=["a", "b"], codebooks=[4],
            attributes=[Attribute("country", values=["x", "y"]), Attribute("place", bloom=64)],
            rules=[{"country": {"accepts": ["x"]}}, {"place": {"accepts": ["p"]}}],
        )
    )  # fmt: skip
    requests = [{"country": "x", "place": ["p"], "exclude": ["a"]}, None]
    filters = index.encode_requests(requests, B)
    cpu = torch.device("cpu")
    return matchers.DeviceRequests(filters, matchers.DeviceTargeting(index, cpu), cpu)


PRODUCTS = {"statistics", "score_groups", "score_slots", "score_rows"}
OTHERS = {
    "finish_tokens", "choose_cells", "key_cells", "find_units",
    "add_shares", "link_rows", "finish_slots", "row_bitmaps", "write_best", "rule_out",
    "permitted_tokens_dense", "permitted_tokens_sparse",
}  # fmt: skip


@pytest.mark.parametrize(
    ("architecture", "dtype", "wanted"),
    [
        (90, torch.bfloat16, PRODUCTS | OTHERS),
        (80, torch.float32, PRODUCTS | {"split_rows"}),  # what differs there
    ],
    ids=["sm_90, bfloat16", "sm_80, float32"],
)
def test_all_kernels_compile(architecture, dtype, wanted, monkeypatch):
    compiled: set[str] = set()
    for module in (call, full, matchers, selective):
        monkeypatch.setattr(module, "launch", compile_instead(architecture, compiled, wanted))
    steps: list[tuple[DeviceTable, int, int, Projection | None, str]]
    dense, sparse = table(1, "dense"), table(2, "sparse")
    steps = [
        (dense, 1, 32, None, ""),
        (dense, M, 32, None, ""),
        (dense, M, 32, None, "guided"),
        (dense, M, 32, None, "targeted"),
        (dense, 16 * M, 32, None, ""),  # more than one program holds
        (sparse, M, 32, "selective", ""),
        (sparse, M, 32, "selective", "apart"),
        (sparse, M, 40, "selective", "targeted"),
        (table(2, "sparse", most=400), M, 32, "selective", "rows"),
        (sparse, M, 32, "full", "targeted"),
    ]
    asked = targeting()
    asked.prepare()
    for held, places, width, projection, how in steps:
        monkeypatch.setitem(TUNING["slots"], "find", 0 if how == "apart" else 2)
        monkeypatch.setitem(TUNING["rows"], "shared", int(how == "rows"))
        beams = planning.StepArrays(
            torch.zeros(B, places), torch.zeros(B, places, dtype=torch.int64),
            torch.zeros(B, places, dtype=torch.bool),
            torch.zeros(B, places, 1, dtype=torch.int32), distinct=True,
        )  # fmt: skip
        inputs = StepInputs(
            width, hidden=torch.zeros(B, places, D, dtype=dtype),
            head=torch.zeros(V, D, dtype=dtype), projection=projection,
            bonus=torch.zeros(B, places, V) if how == "guided" else None,
        )  # fmt: skip
        tables = DeviceTables((held, held), ragged=False)
        own = asked.of_step(1) if how == "targeted" else None
        planning.run_step(tables, beams, 1, inputs, "catalog", own)
    assert compiled == wanted
