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


@pytest.mark.parametrize("floor", [1.0, 0.01])
@pytest.mark.parametrize("end_token", [False, True])
def test_the_cost_is_that_of_what_no_item_continues(end_token, floor):
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
            share = likely[sorted(follow)].sum()
            wanted += float(torch.log1p((1 - share) / share / floor))
    found = ValidTokens(ItemSids(index), "cpu", floor).cost(logits, torch.from_numpy(spelled))
    assert float(found) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("ahead", [0.0, 50.0, 300.0])
def test_a_token_that_no_item_has_may_be_far_ahead(ahead):
    index = Index.build(Catalog.from_arrays([[0, 1], [1, 2]], codebooks=3))
    logits = [torch.zeros(1, 3), torch.tensor([[ahead, 0.0, 0.0]], requires_grad=True)]
    cost = ValidTokens(ItemSids(index), "cpu", 0.01).cost(logits, torch.tensor([[0, 1]]))
    odds = np.array([0.5, np.exp(ahead) + 1])  # of the first level, and of the second
    assert cost.item() == pytest.approx(np.log1p(odds / 0.01).sum(), rel=1e-5)
    (slope,) = torch.autograd.grad(cost, logits[1])
    assert slope[0].tolist() == pytest.approx([1, -1, 0], abs=0.51)


@pytest.mark.parametrize("read", [False, True])
def test_drawn_targets_stand_behind_those_that_came(read):
    index = Index.build(Catalog.from_arrays(np.arange(12)[:, None], codebooks=12))
    numbers = torch.arange(5)[:, None] + torch.arange(3)  # five histories of three
    rows, places = torch.arange(5).repeat_interleave(3), torch.arange(3).repeat(5)
    targets = numbers.flatten()[:, None].clone()
    targets[14] = -1  # a place behind the end
    batch = Batch(numbers[:, :2, None], targets, rows, places)
    valid = ValidTokens(ItemSids(index), "cpu", targets_are_read=read)
    again = [0, 1, 2, 3, 4] if read else [0, 4]
    own = targets.reshape(5, 3)[again].flatten()
    stays, drawn = 0, []
    for seed in range(20):
        torch.manual_seed(seed)
        more = valid.with_drawn(batch, valid.repeated_places(rows))
        assert more.drawn == len(own)
        assert torch.equal(more.histories[5:], batch.histories[again])
        assert more.rows[15:].tolist() == (5 + np.repeat(np.arange(len(again)), 3)).tolist()
        assert more.places[15:].tolist() == [0, 1, 2] * len(again)
        assert torch.equal(more.targets[:15], batch.targets)
        assert more.targets[-1] == -1
        drawn += more.targets[15:-1, 0].tolist()
        stays += int((more.targets[15:-1, 0] == own[:-1]).sum())
    assert set(drawn) == set(range(12))
    # By luck alone a twelfth of them are what they were; half of them where they are read.
    assert (stays > 0.35 * len(drawn)) == read


def test_an_item_that_is_not_costs_nothing():
    index = Index.build(Catalog.from_arrays(np.array([[0, 1], [2, 3]]), codebooks=4))
    valid = ValidTokens(ItemSids(index), "cpu")
    logits = [torch.zeros(1, 4), torch.zeros(1, 4)]
    assert float(valid.cost(logits, torch.tensor([[-1, -1]]))) == 0


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
            costs.append(float(valid.cost(said, targets)))
    assert costs[1] < 0.5 * costs[0]


def test_a_weight_that_is_none_is_refused():
    with pytest.raises(InputError, match="validity is -1"):
        TrainingSettings(validity=-1.0)
    with pytest.raises(InputError, match="validity_floor is 0"):
        TrainingSettings(validity_floor=0)
