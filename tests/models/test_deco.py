"""Deco alone: concepts, the light decoder, and what is tied to what."""

import torch

from beamsieve.models.deco import Deco

from .family import small, some_sids


def a_deco(seed: int = 0, **sizes: int) -> Deco:
    model = small(("deco", False), seed, **sizes)
    assert isinstance(model, Deco)
    return model


@torch.no_grad()
def test_concepts_depend_on_earlier_items_alone():
    model = a_deco()
    histories = some_sids(3, 6)
    before = model.think(histories)
    histories[:, 4:] = some_sids(3, 2)
    after = model.think(histories)
    torch.testing.assert_close(after[:, :5], before[:, :5])
    assert (after[:, 5:] - before[:, 5:]).abs().amax((-1, -2)).min() > 1e-4


@torch.no_grad()
def test_a_reading_is_the_concepts_behind_the_last_item():
    model = a_deco(concepts=3)
    histories, lengths = some_sids(2, 5), torch.tensor([5, 2])
    reading = model.read(histories, lengths)
    assert reading.concepts is not None
    assert reading.concepts.shape == (2, 3, 16)
    torch.testing.assert_close(reading.concepts[1], model.think(histories[1:, :2])[0, 2])
    assert len(reading.tensors()) == 1  # nothing of the history is needed again


@torch.no_grad()
def test_each_level_sees_its_prefix_alone():
    model = a_deco()
    concepts = model.think(some_sids(4, 1))[:, 1]
    targets = some_sids(4)
    hidden = model.spell(concepts, targets[:, :3])
    assert hidden.shape == (4, 4, 16)
    for level in range(4):
        alone = model.spell(concepts, targets[:, :level])[:, -1]
        torch.testing.assert_close(hidden[:, level], alone)


def test_shorter_semantic_ids_are_read_as_themselves():
    model = a_deco()
    sids = torch.tensor([[1, 2, 3, -1], [1, 2, 3, 0]])
    long, short = model.fuse(sids)
    assert not torch.allclose(long, short)


def test_embeddings_and_heads_are_not_tied_and_enter_with_unit_variance():
    model = a_deco(width=128, decoder_width=64)
    tables = [e.weight for e in (*model.item_codes, *model.prefix_codes)]
    heads = [head.weight for head in model.heads]
    assert len({weight.data_ptr() for weight in tables + heads}) == 4 + 3 + 4
    for table in tables:
        assert (table * table.shape[1] ** 0.5).std().item() > 0.85
