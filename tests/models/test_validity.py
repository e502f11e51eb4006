"""The cost of probability that no item can have."""

import numpy as np
import pytest
import torch

from beamsieve.catalog import Catalog
from beamsieve.index import Index
from beamsieve.models.sequences import ItemSids
from beamsieve.models.validity import ValidTokens


@pytest.mark.parametrize("end_token", [False, True])
def test_the_cost_is_that_of_what_no_item_continues(end_token):
    random = np.random.default_rng(0)
    sids = random.integers(0, 4, (15, 3))
    if end_token:
        sids[:5, 2] = -1
    index = Index.build(Catalog.from_arrays(sids, codebooks=4, end_token=end_token))
    spelled = ItemSids(index).sids
    leaves = torch.arange(len(spelled))
    drawn = torch.Generator().manual_seed(0)
    logits = [torch.randn(len(leaves), size, generator=drawn) for size in index.codebooks]
    wanted = 0.0
    for row, sid in enumerate(spelled.tolist()):
        for level in range(len(index.codebooks)):
            if sid[level] < 0:
                continue
            follow = {s[level] for s in spelled.tolist() if s[:level] == sid[:level]}
            likely = torch.softmax(logits[level][row].double(), -1)
            wanted -= float(likely[sorted(follow)].sum().log())
    found = ValidTokens(ItemSids(index), "cpu").of_logits(logits, leaves)
    assert float(found) == pytest.approx(wanted / len(leaves), rel=1e-5)
