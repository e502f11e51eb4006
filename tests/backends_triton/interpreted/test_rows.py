"""Beams scored by the rows that they share get what each gets alone."""

import pytest
import torch

from beamsieve_backends.triton_slots.tuning import TUNING
from beamsieve_bench.catalogs import Workload, skewed_sids
from beamsieve_bench.gpu_stage import Stage
from beamsieve_bench.gpu_workloads import step_tables


@pytest.mark.parametrize("step", [1, 2])
def test_shared_rows_are_scored_as_each_alone(step, monkeypatch):
    stage = Stage(step_tables(skewed_sids(Workload(2000, 100, 2)), [100] * 2), torch.device("cpu"))
    stage.plan = {1: "selective", 2: "selective"}
    case = stage.cases(3, 20, torch.bfloat16)[step - 1]
    if step == 2:
        case.rows[0, 5] = -1
        case.finished[1, 3] = True
    found = []
    for shared in (0, 1 << 20):
        monkeypatch.setitem(TUNING["rows"], "shared", shared)
        found.append(stage.step(case, 25))
    for name in ("tokens", "scores", "keys", "rows", "parents", "finished", "count"):
        assert torch.equal(*(getattr(new, name) for new in found)), name
