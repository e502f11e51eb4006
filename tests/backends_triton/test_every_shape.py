"""Every kernel that the cells of the GPU benchmark start compiles, in each of its shapes.

What compiles with one release of Triton may fail with another, in one shape of many, and would be
found on a GPU only. It takes minutes, so ``tox -e triton36`` runs it, with that release.
"""

import os

import pytest
import torch

from beamsieve.interface import StepInputs
from beamsieve_backends.triton_slots import step as planning
from beamsieve_backends.triton_slots.tables import DeviceTables, load_table
from beamsieve_bench.catalogs import WORKLOADS, skewed_sids
from beamsieve_bench.gpu_workloads import HIDDEN, step_tables

if os.environ.get("BEAMSIEVE_EVERY_SHAPE") != "1":
    pytest.skip("minutes long: tox -e triton36 runs it", allow_module_level=True)

ITEMS = 1_000_000
"""A tenth of the cells' semantic IDs: only rows' lengths depend on it, and few shapes on those. But
step 2 is full in all cells, which so short rows would not be."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("catalog", sorted(WORKLOADS))
def test_every_shape_compiles(catalog, compile_instead):
    cpu = torch.device("cpu")
    workload = WORKLOADS[catalog]._replace(items=ITEMS)
    held = step_tables(skewed_sids(workload), [workload.vocabulary] * workload.length)
    tables = DeviceTables(tuple(load_table(table, None, cpu) for table in held), ragged=False)
    for dtype in (torch.bfloat16, torch.float32):
        compiled = compile_instead(90, every_shape=True)
        for batch in (1, 8, 32):
            for width in (128, 512):
                for table in held:
                    places = 1 if table.step == 1 else width
                    rows = torch.zeros(batch, places, dtype=torch.int64)
                    beams = planning.StepArrays(
                        torch.zeros(batch, places), rows, rows.bool(),
                        torch.zeros(batch, places, table.step - 1, dtype=torch.int32),
                        distinct=False,
                    )  # fmt: skip
                    inputs = StepInputs(
                        width,
                        hidden=torch.zeros(batch, places, HIDDEN, dtype=dtype),
                        head=torch.zeros(table.vocabulary, HIDDEN, dtype=dtype),
                        projection="full" if table.step == 2 else None,
                    )
                    planning.run_step(tables, beams, table.step, inputs, "catalog")
        assert {"statistics", "choose_cells", "finish_slots", "choose_row"} <= compiled
