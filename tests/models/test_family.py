"""Every model of the family: what may influence what, and the search state against training's."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from beamsieve.errors import InputError
from beamsieve.models.batches import Batch
from beamsieve.models.config import ModelConfig
from beamsieve.models.flat import FlatGR
from beamsieve.models.fused import block_causal
from beamsieve.models.losses import spelling_loss
from beamsieve.models.scorer import BeamScorer

from .family import CODEBOOKS, KINDS, NAMES, one_batch, small, some_sids

family = pytest.mark.parametrize("kind", KINDS, ids=NAMES)


@dataclass
class GivenBeams:
    tokens: Tensor
    parents: Tensor


def nothing_yet(batch: int) -> GivenBeams:
    return GivenBeams(torch.empty((batch, 1, 0), dtype=torch.int32), torch.full((batch, 1), -1))


def log_probabilities(model, said) -> Tensor:
    if isinstance(said, tuple):
        hidden, head, bias = said
        said = hidden @ head.T + bias
    return torch.log_softmax(said, -1)


@family
@torch.no_grad()
def test_a_place_depends_on_earlier_items_and_its_own_prefix_alone(kind):
    model = small(kind)
    histories, targets = some_sids(3, 5), some_sids(3, 6)
    rows, places = torch.nonzero(torch.ones(3, 6), as_tuple=True)
    before = model.logits(Batch(histories, targets[rows, places], rows, places))
    changed = histories.clone()
    changed[:, 4:] = some_sids(3, 1)
    other = targets.clone()
    other[:, :, 2] = (other[:, :, 2] + 1) % CODEBOOKS[2]
    other[:, 4] = changed[:, 4]
    other[:, :4] = targets[:, :4]
    other[:, 3, 2:] = (other[:, 3, 2:] + 1) % torch.tensor(CODEBOOKS[2:])
    after = model.logits(Batch(changed, other[rows, places], rows, places))
    for level in range(4):
        early = (places < 3) | ((places == 3) & (torch.tensor(level) <= 2))
        torch.testing.assert_close(after[level][early], before[level][early])
    # … and does depend on them.
    assert not torch.allclose(after[3][places == 3], before[3][places == 3])
    assert not torch.allclose(after[0][places == 5], before[0][places == 5])


@family
@torch.no_grad()
def test_one_forward_for_all_places_says_what_each_alone_says(kind):
    model = small(kind)
    histories, targets = some_sids(2, 4), some_sids(2, 5)
    if model.config.architecture == "flat-gr":
        targets[:, :4] = histories  # there a target is the history's next item
    rows, places = torch.nonzero(torch.ones(2, 5), as_tuple=True)
    dense = model.logits(Batch(histories, targets[rows, places], rows, places))
    for n, (row, place) in enumerate(zip(rows.tolist(), places.tolist(), strict=True)):
        alone = model.logits(
            one_batch(
                histories[row : row + 1, :place],
                targets[row, place][None],
                torch.tensor([place]),
            )
        )
        for level in range(4):
            torch.testing.assert_close(dense[level][n], alone[level][0], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_flat_models_codes_are_read_with_those_before_them_in_their_item():
    model = small(("flat-gr", False))
    assert isinstance(model, FlatGR)
    sids = some_sids(1, 2)
    other = sids.clone()
    other[0, 1, 1] = (other[0, 1, 1] + 1) % CODEBOOKS[1]
    changed = (model.tokens(sids) != model.tokens(other)).any(-1)[0]
    # A start, four codes of the first item, then of the second the codes from the second one on.
    assert changed.tolist() == [False] * 6 + [True] * 3


@family
@torch.no_grad()
def test_padding_and_batch_change_nothing(kind):
    model = small(kind)
    histories = torch.cat([some_sids(2, 5), torch.full((2, 1, 4), -1)], 1)
    lengths = torch.tensor([5, 2])
    together = BeamScorer(model, model.read(histories, lengths))(1, nothing_yet(2))
    for row, length in enumerate(lengths.tolist()):
        reading = model.read(histories[row : row + 1, :length], lengths[row : row + 1])
        alone = BeamScorer(model, reading)(1, nothing_yet(1))
        torch.testing.assert_close(
            log_probabilities(model, together)[row],
            log_probabilities(model, alone)[0],
            atol=1e-4,
            rtol=1e-4,
        )


@family
@torch.no_grad()
def test_an_empty_history_is_read_alike_by_all(kind):
    model = small(kind)
    reading = model.read(torch.empty((2, 0, 4), dtype=torch.int64), torch.tensor([0, 0]))
    said = log_probabilities(model, BeamScorer(model, reading)(1, nothing_yet(2)))
    assert said.isfinite().all()
    torch.testing.assert_close(said[0], said[1])


@family
@pytest.mark.parametrize("layers", [1, 3])
@torch.no_grad()
def test_the_search_state_follows_the_beams(kind, layers):
    """Reordered by parents step by step, it says what training's forward says of each prefix."""
    model = small(kind, decoder_layers=layers, layers=layers, concepts=3)
    histories, lengths = some_sids(3, 4), torch.tensor([4, 0, 2])
    score = BeamScorer(model, model.read(histories, lengths))
    for _ in range(2):  # one scorer serves one search after the other
        beams = nothing_yet(3)
        for step, width in enumerate((4, 6, 3, 2), 1):
            said = log_probabilities(model, score(step, beams))
            places = beams.tokens.shape[1]
            targets = torch.zeros((3 * places, 4), dtype=torch.int64)
            targets[:, : step - 1] = beams.tokens.flatten(0, 1)
            each = torch.arange(3).repeat_interleave(places)
            wanted = model.logits(one_batch(histories[each], targets, lengths[each]))[step - 1]
            wanted = torch.log_softmax(wanted, -1).reshape(said.shape)
            torch.testing.assert_close(said, wanted, atol=1e-4, rtol=1e-4)
            parents = torch.randint(0, places, (3, width))
            before = beams.tokens.gather(1, parents[..., None].expand(-1, -1, step - 1))
            tokens = torch.randint(0, CODEBOOKS[step - 1], (3, width, 1), dtype=torch.int32)
            beams = GivenBeams(torch.cat([before, tokens], -1), parents)


@family
@torch.no_grad()
def test_the_search_state_catches_up_with_a_given_prefix(kind):
    model = small(kind)
    histories, lengths = some_sids(2, 4), torch.tensor([4, 3])
    reading = model.read(histories, lengths)
    targets = some_sids(2)
    beams = GivenBeams(targets[:, None, :2].int(), torch.full((2, 1), -1))
    said = log_probabilities(model, BeamScorer(model, reading)(3, beams))
    wanted = torch.log_softmax(model.logits(one_batch(histories, targets, lengths))[2], -1)
    torch.testing.assert_close(said[:, 0], wanted, atol=1e-4, rtol=1e-4)


@family
@torch.no_grad()
def test_places_without_a_beam_disturb_no_other(kind):
    model = small(kind)
    reading = model.read(some_sids(1, 4), torch.tensor([4]))
    full, fewer = BeamScorer(model, reading), BeamScorer(model, reading)
    for score in (full, fewer):
        score(1, nothing_yet(1))
    tokens = torch.tensor([[[3], [1], [-1]]], dtype=torch.int32)
    said = log_probabilities(model, full(2, GivenBeams(tokens, torch.tensor([[0, 0, -1]]))))
    alone = GivenBeams(tokens[:, :2], torch.tensor([[0, 0]]))
    torch.testing.assert_close(said[:, :2], log_probabilities(model, fewer(2, alone)))
    assert said.isfinite().all()


@family
@torch.no_grad()
def test_a_reading_is_overwritten_in_place(kind):
    model = small(kind)
    lengths = torch.tensor([4, 2])
    first, second = (model.read(some_sids(2, 4), lengths) for _ in range(2))
    score = BeamScorer(model, first)
    score(1, nothing_yet(2))
    first.overwrite(second)
    said = log_probabilities(model, score(1, nothing_yet(2)))
    wanted = log_probabilities(model, BeamScorer(model, second)(1, nothing_yet(2)))
    assert torch.equal(said, wanted)
    with pytest.raises(ValueError, match="does not fit"):
        first.overwrite(model.read(some_sids(3, 4), torch.tensor([4, 2, 1])))


def test_block_causal_shows_each_block_its_history_and_itself():
    seen = block_causal(2, 2, torch.device("cpu")).int().tolist()
    assert seen == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0],
        [1, 0, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 0],
        [1, 1, 0, 0, 1, 1],
    ]


def test_the_loss_is_the_sum_over_levels_and_absent_levels_are_free():
    logits = [torch.randn(3, size) for size in CODEBOOKS]
    targets = some_sids(3)
    targets[1, 2:] = -1
    wanted = 0.0
    for row, level in [(r, t) for r in range(3) for t in range(4) if targets[r, t] >= 0]:
        wanted -= torch.log_softmax(logits[level][row], -1)[targets[row, level]].item()
    assert spelling_loss(logits, targets).item() == pytest.approx(wanted / 3, rel=1e-5)


def test_a_teacher_makes_up_its_share_of_the_target():
    logits, teacher = ([torch.randn(2, size) for size in CODEBOOKS] for _ in range(2))
    targets = some_sids(2)
    targets[1, 3] = -1
    loss = spelling_loss(logits, targets, teacher=teacher, teacher_share=0.3).item()
    wanted = 0.0
    for row, level in [(r, t) for r in range(2) for t in range(4) if targets[r, t] >= 0]:
        goal = 0.3 * torch.softmax(teacher[level][row], -1)
        goal[targets[row, level]] += 0.7
        wanted -= (goal * torch.log_softmax(logits[level][row], -1)).sum().item()
    assert loss == pytest.approx(wanted / 2, rel=1e-5)


@family
def test_every_weight_that_is_used_learns(kind):
    model = small(kind).train()
    histories, targets = some_sids(2, 4), some_sids(2, 5)
    rows, places = torch.nonzero(torch.ones(2, 5), as_tuple=True)
    batch = Batch(histories, targets[rows, places], rows, places)
    spelling_loss(model.logits(batch), batch.targets).backward()
    unused = [name for name, p in model.named_parameters() if p.grad is None]
    assert unused == []
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@torch.no_grad()
def test_the_pointer_shares_out_the_weights_of_matching_items():
    model = small(("deco", True), longest=3)
    assert model.pointer is not None
    history = torch.tensor([[[1, 2, 3, 0], [1, 4, 3, 0], [1, 2, 5, 1]]])
    reading = model.read(history, torch.tensor([3]))
    assert reading.copying is not None
    a = reading.copying.weights[0]
    assert a.sum().item() == pytest.approx(1)
    reading.copying.gate.fill_(0.0)
    score = BeamScorer(model, reading)
    first = score(1, nothing_yet(1))
    assert not isinstance(first, tuple)
    torch.testing.assert_close(first.exp()[0, 0], torch.eye(5)[1])
    tokens = torch.tensor([[[1], [0]]], dtype=torch.int32)
    second = score(2, GivenBeams(tokens, torch.tensor([[0, 0]])))
    assert not isinstance(second, tuple)
    wanted = torch.zeros(7)
    wanted[2], wanted[4] = a[0] + a[2], a[1]
    torch.testing.assert_close(second.exp()[0, 0], wanted)
    # No item begins with 0: there the model speaks alone.
    plain = small(("deco", False), longest=3)
    plain.load_state_dict(model.state_dict(), strict=False)
    alone = BeamScorer(plain, plain.read(history, torch.tensor([3])))
    alone(1, nothing_yet(1))
    said = log_probabilities(plain, alone(2, GivenBeams(tokens, torch.tensor([[0, 0]]))))
    torch.testing.assert_close(second[0, 1], said[0, 1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"width": 30, "heads": 4}, "must divide by heads"),
        ({"layers": 0}, "layers is 0"),
        ({"concepts": -1}, "concepts is -1"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"architecture": "rnn"}, "there are deco, fused-gr, flat-gr"),
    ],
)
def test_impossible_sizes_are_refused(sizes, said):
    with pytest.raises(InputError, match=said):
        ModelConfig(**sizes)
