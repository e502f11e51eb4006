"""The gate before a measurement, on a device that needs none."""

import numpy as np
import pytest
import torch

from beamsieve.catalog import Catalog
from beamsieve.index import Index
from beamsieve_bench.catalogs import Workload, skewed_sids
from beamsieve_bench.gpu_check import check_step
from beamsieve_bench.gpu_stage import Stage
from beamsieve_bench.gpu_workloads import step_tables

SIDS = skewed_sids(Workload(3000, 64, 3))
WIDTH = 12


@pytest.fixture(scope="module")
def stage():
    return Stage(step_tables(SIDS, [64] * 3), torch.device("cpu"))


def test_tables_are_those_of_an_index(stage):
    index = Index.build(Catalog.from_arrays(SIDS, codebooks=[64] * 3))
    for made, expected in zip(stage.host, index.tables, strict=True):
        assert made.arrays.keys() == expected.arrays.keys()
        for name, array in made.arrays.items():
            np.testing.assert_array_equal(array, expected.arrays[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_right_results_pass(stage, dtype):
    assert stage.checked(stage.cases(2, WIDTH, dtype), WIDTH) < 1e-5


@pytest.mark.parametrize("wrong", ["tokens", "scores", "rows", "parents", "count"])
def test_wrong_results_do_not(stage, wrong):
    case = stage.cases(2, WIDTH, torch.float32)[1]
    new = stage.step(case, WIDTH)
    result = {
        name: getattr(new, name).clone()
        for name in ("tokens", "scores", "rows", "parents", "count")
    }
    result[wrong][0] = result[wrong][0].flip(0) if wrong != "count" else 0
    with pytest.raises(AssertionError):
        check_step(stage.host[1], case, WIDTH, tuple(result.values()), 1e-5)
