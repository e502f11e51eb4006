"""Every kernel compiles to machine code for the GPUs that it targets; this needs no GPU."""

import os

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is installed on Linux only")

from beamsieve.catalog import Catalog
from beamsieve.index import Index
from beamsieve.index.layouts import make_table
from beamsieve.interface import Normalize, Projection, StepInputs
from beamsieve.targeting import Attribute
from beamsieve_backends.triton_slots import matchers
from beamsieve_backends.triton_slots import step as planning
from beamsieve_backends.triton_slots.tables import (
    DeviceTable,
    DeviceTables,
    load_table,
)
from beamsieve_backends.triton_slots.tuning import TUNING

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("an interpreted kernel is not compiled", allow_module_level=True)

D, V, M, B = 256, 2048, 64, 2


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


PRODUCTS = {"statistics", "score_groups", "score_slots", "score_rows", "multiply_row"}
OTHERS = {
    "finish_tokens", "choose_cells", "key_cells", "find_units",
    "add_shares", "link_rows", "finish_slots", "row_bitmaps", "write_best", "rule_out",
    "permitted_tokens_dense", "permitted_tokens_sparse", "permitted_units", "choose_row",
}  # fmt: skip


@pytest.mark.parametrize(
    ("architecture", "dtype", "wanted"),
    [
        (90, torch.bfloat16, PRODUCTS | OTHERS),
        (80, torch.float32, PRODUCTS | {"split_rows"}),  # what differs there
    ],
    ids=["sm_90, bfloat16", "sm_80, float32"],
)
def test_all_kernels_compile(architecture, dtype, wanted, monkeypatch, compile_instead):
    compiled = compile_instead(architecture, wanted)
    steps: list[tuple[DeviceTable, int, int, Projection | None, str]]
    dense, sparse = table(1, "dense"), table(2, "sparse")
    root = table(1, "dense", rows=1, most=V)
    steps = [
        (dense, 1, 32, None, ""),
        (root, 1, 32, None, ""),
        (root, 1, 32, None, "narrowed"),
        (root, 1, V, None, "narrowed"),
        (root, 1, 32, None, "targeted"),
        (dense, M, 32, None, ""),
        (dense, M, 32, None, "guided"),
        (dense, M, 32, None, "targeted"),
        (dense, M, 32, None, "all"),
        (dense, 16 * M, 32, None, ""),  # more than one program holds
        (sparse, M, 32, "selective", ""),
        (sparse, M, 40, "selective", "targeted"),
        (table(2, "sparse", most=400), M, 32, "selective", "rows"),
        (sparse, M, 32, "full", "targeted"),
    ]
    asked = targeting()
    asked.prepare()
    for held, places, width, projection, how in steps:
        monkeypatch.setitem(TUNING["rows"], "shared", int(how == "rows"))
        monkeypatch.setitem(TUNING["one_row"], "pairs", 0 if how == "narrowed" else 1 << 40)
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
        normalize: Normalize = "all" if how == "all" else "catalog"
        planning.run_step(tables, beams, 1, inputs, normalize, own)
    assert compiled == wanted
