"""Which projection a step takes where no plan says it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is installed on Linux only")

from beamsieve.index.layouts import make_table
from beamsieve_backends.triton_slots.step import choose_projection
from beamsieve_backends.triton_slots.tables import load_table


@pytest.mark.parametrize("hub", [False, True], ids=["short rows", "one row of all tokens"])
def test_one_wide_row_makes_nobody_score_the_whole_codebook(hub):
    degrees = np.ones(2000, np.int64)
    degrees[7] = 1024 if hub else 1
    starts = np.concatenate([[0], np.cumsum(degrees)])
    tokens = np.concatenate([np.arange(n) for n in degrees]).astype(np.uint16)
    table = load_table(make_table(2, 1024, starts, tokens, "sparse"), None, torch.device("cpu"))
    beams: Any = SimpleNamespace(scores=torch.zeros(2, 128), distinct=True)
    assert choose_projection(table, beams, None, "catalog", given_logits=False) == "selective"
