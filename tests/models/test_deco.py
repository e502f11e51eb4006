"""Deco: what may and may not influence what, and the search state against a full forward."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from beamsieve.errors import InputError
from beamsieve.models.deco import Deco, DecoConfig
from beamsieve.models.scorer import DecoScorer

CODEBOOKS = (5, 7, 9, 4)


@dataclass
class GivenBeams:
    tokens: Tensor
    parents: Tensor


def small(seed: int = 0, **sizes: int) -> Deco:
    torch.manual_seed(seed)
    config = {"width": 32, "heads": 2, "decoder_width": 16, "decoder_layers": 2, "longest": 6}
    return Deco(DecoConfig(**{**config, **sizes}), CODEBOOKS).eval()


def some_sids(*shape: int) -> Tensor:
    return torch.stack([torch.randint(0, size, shape) for size in CODEBOOKS], -1)


@torch.no_grad()
def test_concepts_depend_on_earlier_items_alone():
    model = small()
    histories = some_sids(3, 6)
    before = model.think(histories)
    histories[:, 4:] = some_sids(3, 2)
    after = model.think(histories)
    torch.testing.assert_close(after[:, :5], before[:, :5])
    assert (after[:, 5:] - before[:, 5:]).abs().amax((-1, -2)).min() > 1e-4


@torch.no_grad()
def test_padding_changes_nothing():
    model = small()
    histories = some_sids(2, 5)
    padded = torch.cat([histories, torch.full((2, 1, 4), -1)], 1)
    lengths = torch.tensor([5, 2])
    alone = torch.cat(
        [model.concepts(histories[:1], lengths[:1]), model.think(histories[1:, :2])[:, 2]]
    )
    torch.testing.assert_close(model.concepts(padded, lengths), alone)


@torch.no_grad()
def test_an_empty_history_has_concepts():
    model = small(concepts=3)
    concepts = model.concepts(torch.empty((2, 0, 4), dtype=torch.int64), torch.tensor([0, 0]))
    assert concepts.shape == (2, 3, 16)
    assert torch.equal(concepts[0], concepts[1])


@torch.no_grad()
def test_each_level_sees_its_prefix_alone():
    model = small()
    concepts = model.think(some_sids(4, 1))[:, 1]
    targets = some_sids(4)
    hidden = model.spell(concepts, targets[:, :3])
    assert hidden.shape == (4, 4, 16)
    for level in range(4):
        alone = model.spell(concepts, targets[:, :level])[:, -1]
        torch.testing.assert_close(hidden[:, level], alone)


@torch.no_grad()
def test_the_loss_is_the_sum_over_levels_and_absent_levels_are_free():
    model = small()
    concepts = model.think(some_sids(3, 2))[:, 2]
    targets = some_sids(3)
    targets[1, 2:] = -1
    hidden = model.spell(concepts, targets[:, :3].clamp(min=0))
    wanted = 0.0
    for row, level in [(r, t) for r in range(3) for t in range(4) if targets[r, t] >= 0]:
        logits = model.heads[level](hidden[row, level])
        wanted -= torch.log_softmax(logits, -1)[targets[row, level]].item()
    assert model.loss(concepts, targets).item() == pytest.approx(wanted / 3, rel=1e-5)


def test_shorter_semantic_ids_are_read_as_themselves():
    model = small()
    sids = torch.tensor([[1, 2, 3, -1], [1, 2, 3, 0]])
    long, short = model.fuse(sids)
    assert not torch.allclose(long, short)


def test_embeddings_and_heads_are_not_tied_and_enter_with_unit_variance():
    model = small(width=128, decoder_width=64)
    tables = [e.weight for e in (*model.item_codes, *model.prefix_codes)]
    heads = [head.weight for head in model.heads]
    assert len({weight.data_ptr() for weight in tables + heads}) == 4 + 3 + 4
    for table in tables:
        assert (table * table.shape[1] ** 0.5).std().item() == pytest.approx(1, abs=0.15)


@torch.no_grad()
@pytest.mark.parametrize("layers", [1, 3])
def test_the_search_state_follows_the_beams(layers):
    """Reordered by parents step by step, it says what a fresh forward over each prefix says."""
    model = small(decoder_layers=layers, concepts=3)
    concepts = model.think(some_sids(3, 4))[:, 4]
    score = DecoScorer(model, concepts)
    beams = GivenBeams(torch.empty((3, 1, 0), dtype=torch.int32), torch.full((3, 1), -1))
    for step, width in enumerate((4, 6, 3, 2), 1):
        hidden, head, bias = score(step, beams)
        places = beams.tokens.shape[1]
        prefixes = beams.tokens.reshape(3 * places, step - 1).long()
        wanted = model.spell(concepts.repeat_interleave(places, 0), prefixes)[:, -1]
        torch.testing.assert_close(hidden, wanted.reshape(3, places, 16))
        assert torch.equal(head, model.heads[step - 1].weight)
        assert torch.equal(bias, model.heads[step - 1].bias)
        parents = torch.randint(0, places, (3, width))
        before = beams.tokens.gather(1, parents[..., None].expand(-1, -1, step - 1))
        tokens = torch.randint(0, CODEBOOKS[step - 1], (3, width, 1), dtype=torch.int32)
        beams = GivenBeams(torch.cat([before, tokens], -1), parents)


@torch.no_grad()
def test_the_search_state_catches_up_with_a_given_prefix():
    model = small()
    concepts = model.think(some_sids(2, 4))[:, 4]
    tokens = some_sids(2, 1)[..., :2]
    beams = GivenBeams(tokens.int(), torch.full((2, 1), -1))
    hidden, _, _ = DecoScorer(model, concepts)(3, beams)
    torch.testing.assert_close(hidden[:, 0], model.spell(concepts, tokens[:, 0])[:, -1])


@torch.no_grad()
def test_places_without_a_beam_disturb_no_other():
    model = small()
    concepts = model.think(some_sids(1, 4))[:, 4]
    full = DecoScorer(model, concepts)
    full(1, GivenBeams(torch.empty((1, 1, 0), dtype=torch.int32), torch.tensor([[-1]])))
    tokens = torch.tensor([[[3], [1], [-1]]], dtype=torch.int32)
    hidden, _, _ = full(2, GivenBeams(tokens, torch.tensor([[0, 0, -1]])))
    torch.testing.assert_close(hidden[0, 0], model.spell(concepts, tokens[:, 0].long())[0, -1])
    assert hidden.isfinite().all()


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"width": 30, "heads": 4}, "must divide by heads"),
        ({"layers": 0}, "layers is 0"),
        ({"concepts": -1}, "concepts is -1"),
        ({"dropout": 1.0}, "dropout is 1.0"),
    ],
)
def test_impossible_sizes_are_refused(sizes, said):
    with pytest.raises(InputError, match=said):
        DecoConfig(**sizes)
