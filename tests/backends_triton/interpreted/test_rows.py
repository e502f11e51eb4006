"""Beams scored by the rows that they share get what each gets alone."""

import numpy as np
import pytest
import torch

from beamsieve.catalog import Catalog
from beamsieve.engine import Engine
from beamsieve.index import Index
from beamsieve.interface import StepInputs
from beamsieve.targeting import Attribute
from beamsieve_backends.triton_slots import TritonBackend
from beamsieve_backends.triton_slots.tuning import FURTHER, TUNING
from beamsieve_bench.catalogs import Workload, skewed_sids
from beamsieve_bench.gpu_stage import Stage
from beamsieve_bench.gpu_workloads import step_tables


@pytest.mark.parametrize("step", [1, 2])
def test_shared_rows_are_scored_as_each_alone(step, monkeypatch):
    stage = Stage(step_tables(skewed_sids(Workload(900, 50, 2)), [50] * 2), torch.device("cpu"))
    stage.plan = {1: "selective", 2: "selective"}
    case = stage.cases(3, 18, torch.bfloat16)[step - 1]
    if step == 2:
        case.rows[0, 5] = -1
        case.finished[1, 3] = True
    found = []
    assert stage.tables.tables[step - 1].slots == FURTHER  # long rows, as sharing needs
    for shared in (0, 1 << 20):
        monkeypatch.setitem(TUNING["rows"], "shared", shared)
        found.append(stage.step(case, 25))
    for name in ("tokens", "scores", "keys", "rows", "parents", "finished", "count"):
        assert torch.equal(*(getattr(new, name) for new in found)), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_wide_row_is_scored_for_many_requests_as_for_each(dtype, monkeypatch):
    sids = [[token, token % 7] for token in range(30)] + [[3, token] for token in range(600)]
    stage = Stage(step_tables(np.unique(sids, axis=0), [600] * 2), torch.device("cpu"))
    stage.plan = {2: "selective"}
    case = stage.cases(5, 6, dtype)[1]
    for b in range(5):
        case.rows[b] = torch.randperm(30, generator=torch.manual_seed(b))[:6]
        case.rows[b, 1 + b % 2] = 3 if b != 2 else 29  # the row, all but one of them
    found = []
    monkeypatch.setitem(TUNING["rows"], "shared", 0)
    for together, programs in ((2, 4), (4, 2), (16, 1)):
        shape = {"together": together, "programs": programs}
        monkeypatch.setitem(TUNING["slots"], "together", 0)
        monkeypatch.setitem(TUNING, "slots_of_wide_rows", shape)
        found.append(stage.step(case, 40))
    for name in ("tokens", "scores", "keys", "rows", "parents", "finished", "count"):
        first, *others = (getattr(new, name) for new in found)
        assert all(torch.equal(first, other) for other in others), name


@pytest.mark.parametrize("normalize", ["catalog", "eligible"])
def test_requests_that_share_rows_keep_their_own_targeting(normalize):
    draw = np.random.default_rng(3)
    sids = np.unique(draw.integers(0, [6, 40], (150, 2)), axis=0)
    rules = [{"country": {"accepts": [["x"], ["y"], ["x", "y"]][n % 3]}} for n in range(len(sids))]
    index = Index.build(
        Catalog.from_arrays(
            sids, codebooks=[6, 40], rules=rules,
            attributes=[Attribute("country", values=["x", "y"])],
        )
    )  # fmt: skip
    found = []
    for backend in (TritonBackend(), "torch:cpu"):
        engine = Engine(index, backend, normalize)
        beams = engine.begin(3, requests=[{"country": "x"}, None, {"country": "y"}])
        for width, places in ((6, 1), (30, 6)):
            inputs = StepInputs(
                width, projection="selective",
                hidden=torch.randn(3, places, 32, generator=torch.manual_seed(width)).bfloat16(),
                head=torch.randn(40, 32, generator=torch.manual_seed(9))[: 6 if places == 1 else 40]
                .bfloat16(),
            )  # fmt: skip
            beams = engine._backend.step(beams, inputs, normalize)
        found.append(beams)
    torch.testing.assert_close(found[0].scores, found[1].scores, rtol=1e-4, atol=1e-4)
    assert found[0].count.tolist() == found[1].count.tolist()
