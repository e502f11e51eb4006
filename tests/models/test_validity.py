"""The cost of probability that no item can have."""

import numpy as np
import pytest
import torch

from beamsieve.catalog import Catalog
from beamsieve.errors import InputError
from beamsieve.index import Index
from beamsieve.models import Histories, ModelConfig, TrainingSettings, load_checkpoint, train
from beamsieve.models.batches import Batch
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


def test_a_training_that_is_charged_keeps_to_the_catalog(tmp_path):
    cells = np.arange(0, 60, 3)
    sids = np.stack([cells // 8, cells % 8], 1)
    index = Index.build(Catalog.from_arrays(sids, items=np.arange(20), codebooks=8))
    # Half of the items, and their first codes, are in no history: only the charge tells of them.
    histories = Histories.from_lists([[(start + n) % 10 for n in range(5)] for start in range(20)])
    costs = []
    for weight in (0.0, 3.0):
        settings = TrainingSettings(
            epochs=10, batch=8, learning_rate=1e-2, warm_up_steps=5, average=0.9, threads=1,
            validity=weight,
        )  # fmt: skip
        path = tmp_path / f"{weight}.safetensors"
        config = ModelConfig(width=16, layers=1, heads=2, decoder_width=16, dropout=0.0)
        train(histories, index, path, config=config, settings=settings)
        model = load_checkpoint(path, index).model
        reading = torch.zeros(20, 0, 2, dtype=torch.int64)
        torch.manual_seed(0)
        places = torch.arange(20)
        targets = torch.from_numpy(ItemSids(index).sids)
        with torch.no_grad():
            said = model.logits(Batch(reading, targets, places, torch.zeros_like(places)))
            valid = ValidTokens(ItemSids(index), "cpu")
            costs.append(float(valid.of_logits(said, torch.arange(20))))
    assert costs[1] < 0.5 * costs[0]


def test_a_weight_that_is_none_is_refused():
    with pytest.raises(InputError, match="validity is -1"):
        TrainingSettings(validity=-1.0)
