"""Training's forward: what may and may not influence what."""

import pytest
import torch

from beamsieve.models.batches import Batch
from beamsieve.models.wide import Encoder, Wide, WideConfig

from .wide_given import CODEBOOKS, small, some_sids


def a_batch(histories):
    rows, places = torch.tensor([0, 0, 1, 2, 2]), torch.tensor([0, 3, 2, 1, 4])
    return Batch(histories, some_sids(5), rows, places)


@torch.no_grad()
def test_every_target_sees_its_own_context_and_prefix_alone():
    model = small()
    histories = some_sids(3, 4)
    batch = a_batch(histories)
    logits = model.logits(batch)
    assert [tuple(part.shape) for part in logits] == [(5, size) for size in CODEBOOKS]
    for n, (row, place) in enumerate(zip(batch.rows, batch.places, strict=True)):
        reading = model.read(histories[row : row + 1, :place], place[None])
        seen = torch.ones(1, int(place) + 1, dtype=torch.bool)
        for level in range(4):
            prefix = batch.targets[n, :level][None, None]
            alone = model.spell(reading.context, seen, prefix)[0, 0, -1]
            wanted = model.heads[level](alone)
            torch.testing.assert_close(logits[level][n], wanted, rtol=1e-4, atol=1e-4)


def test_it_learns():
    torch.manual_seed(0)
    model = Wide(WideConfig(width=32, layers=1, feed=48, encoder_heads=2, longest=6), CODEBOOKS)
    batch = a_batch(some_sids(3, 4))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for _ in range(40):
        parts = [
            torch.nn.functional.cross_entropy(logits, batch.targets[:, level])
            for level, logits in enumerate(model.logits(batch))
        ]
        loss = torch.stack(parts).sum()
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.2 * losses[0]


@torch.no_grad()
def test_another_encoder_can_take_its_place():
    class Constant(Encoder):
        def states(self, histories):
            return torch.ones(len(histories), histories.shape[1] + 1, 32)

    torch.manual_seed(0)
    config = WideConfig(width=32, feed=48)
    model = Wide(config, CODEBOOKS, Constant()).eval()
    one, other = model.logits(a_batch(some_sids(3, 4))), model.logits(a_batch(some_sids(3, 4)))
    torch.testing.assert_close(one[0], other[0])
    assert not [name for name, _ in model.named_parameters() if name.startswith("encoder")]


def test_a_model_can_be_made_again_from_its_description():
    model = small(layers=3)
    said = model.describe()
    again = Wide(WideConfig(**said["config"]), said["codebooks"])
    again.load_state_dict(model.state_dict())
    assert again.codebooks == CODEBOOKS
    with pytest.raises(RuntimeError, match="layers"):
        small(layers=2).load_state_dict(model.state_dict())
