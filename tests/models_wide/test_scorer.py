"""The search state against a whole forward over every prefix, and what is refused."""

from typing import Any, cast

import pytest
import torch

from beamsieve.errors import InputError
from beamsieve.models.wide import WideConfig, WideScorer, laws, products, weights_of
from beamsieve.models.wide.config import check_codebooks

from .wide_given import CODEBOOKS, first_beams, next_beams, small, some_sids, spelt

WIDTHS = (4, 6, 3, 2)
ALL_FIRST = (7, 6, 3, 2)
"""The first step keeps every token there is, and has places left."""


def difference(found, expected):
    return float((found.float() - expected).norm() / expected.norm())


@torch.no_grad()
@pytest.mark.parametrize("own", ["plain", "generic"])
@pytest.mark.parametrize("context", ["plain", "per_beam"])
@pytest.mark.parametrize(
    ("batch", "layers", "head_width", "widths"),
    [(1, 1, 64, WIDTHS), (3, 2, 128, WIDTHS), (2, 3, 64, ALL_FIRST), (2, 1, 64, ALL_FIRST)],
)
@pytest.mark.parametrize("table_bytes", [0, 1 << 20])
def test_decode_equals_the_naive_decoder(
    own, context, batch, layers, head_width, widths, table_bytes
):
    model = small(layers=layers, head_width=head_width, heads=2)
    weights = weights_of(model, torch.float32, table_bytes=table_bytes)
    assert (weights.pairs is None) == (table_bytes == 0)
    score = WideScorer(weights, batch, widths, 7, own=own, context=context)
    for _ in range(2):  # one scorer serves one search after the other
        lengths = torch.randint(0, 6, (batch,))
        reading = model.read(some_sids(batch, 5), lengths)
        score.load(reading.context, reading.lengths)
        beams = first_beams(batch)
        for step, width in enumerate(widths, 1):
            hidden, head = score(step, beams)
            expected = spelt(model, reading, beams.tokens) @ model.heads[step - 1].weight.T
            live = beams.tokens.ge(0).all(-1)  # no parent of theirs was empty
            assert difference((hidden @ head.T)[live], expected[live]) < 2e-6, step
            beams = next_beams(beams, width, CODEBOOKS[step - 1])


@torch.no_grad()
@pytest.mark.parametrize("context", ["plain", "per_beam"])
def test_what_fills_a_context_up_may_be_anything(context):
    score = WideScorer(weights_of(small(), torch.float32), 2, WIDTHS, 7, context=context)
    given, lengths = torch.randn(2, 5, 32), torch.tensor([5, 2])
    score.load(given, lengths)
    expected, _ = score(1, first_beams(2))
    score.load(torch.full((2, 7, 32), torch.nan))  # and what an earlier search left there
    given[1, 2:] = torch.tensor([torch.nan, torch.inf]).repeat(16)
    score.load(given, lengths)
    found, _ = score(1, first_beams(2))
    assert torch.isfinite(expected).all()
    assert torch.equal(found, expected)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near(dtype):
    model = small()
    reading = model.read(some_sids(2, 5), torch.tensor([5, 2]))
    score = WideScorer(weights_of(model, dtype), 2, WIDTHS, 6)
    score.load(reading.context, reading.lengths)
    beams = first_beams(2)
    for step, width in enumerate(WIDTHS, 1):
        hidden, head = score(step, beams)
        assert hidden.dtype == dtype
        expected = spelt(model, reading, beams.tokens) @ model.heads[step - 1].weight.T
        live = beams.tokens.ge(0).all(-1)  # no parent of theirs was empty
        assert difference((hidden @ head.T)[live], expected[live]) < 0.03
        beams = next_beams(beams, width, CODEBOOKS[step - 1])


@torch.no_grad()
@pytest.mark.parametrize("codebooks", [(5, 6), (3, 4, 2, 5, 3, 4, 2, 3), (16_384, 3)])
def test_two_to_eight_levels(codebooks):
    model = small(codebooks)
    reading = model.read(some_sids(2, 3, codebooks=codebooks), torch.tensor([3, 1]))
    widths = (3,) * len(codebooks)
    score = WideScorer(weights_of(model, torch.float32), 2, widths, 4)
    score.load(reading.context, reading.lengths)
    beams = first_beams(2)
    for step, width in enumerate(widths, 1):
        hidden, head = score(step, beams)
        expected = spelt(model, reading, beams.tokens) @ model.heads[step - 1].weight.T
        live = beams.tokens.ge(0).all(-1)  # no parent of theirs was empty
        assert difference((hidden @ head.T)[live], expected[live]) < 2e-6
        beams = next_beams(beams, width, codebooks[step - 1])


@torch.no_grad()
@pytest.mark.parametrize("table_bytes", [0, 1 << 20])
def test_a_search_may_begin_with_a_prefix(table_bytes):
    model = small()
    reading = model.read(some_sids(2, 4), torch.tensor([4, 4]))
    weights = weights_of(model, torch.float32, table_bytes=table_bytes)
    score = WideScorer(weights, 2, (3, 2), 5, prefix=2)
    score.load(reading.context, reading.lengths)
    beams = first_beams(2)
    beams.tokens = some_sids(2, 1)[..., :2].int()
    hidden, head = score(3, beams)
    expected = spelt(model, reading, beams.tokens) @ model.heads[2].weight.T
    assert difference(hidden @ head.T, expected) < 2e-6
    beams = next_beams(beams, 3, CODEBOOKS[2])
    hidden, head = score(4, beams)
    expected = spelt(model, reading, beams.tokens) @ model.heads[3].weight.T
    assert difference((hidden @ head.T)[0], expected[0]) < 2e-6


@torch.no_grad()
def test_the_table_of_pairs_is_what_a_search_makes_of_each_pair():
    """In pieces, and each row what the search without the table has behind those two tokens."""
    model = small((150, 120, 9), layers=1)
    table = weights_of(model, torch.float32, table_bytes=1 << 30).pairs
    assert table is not None
    assert len(table.x) == 150 * 120
    pairs = torch.randint(0, 120, (2, 40, 2), dtype=torch.int32)
    layer, scale = model.layers[0], model.config.width**0.5
    codes = [model.codes[level](pairs[..., level : level + 1].long()) for level in range(2)]
    x = torch.cat([model.start.expand(2, 40, 1, -1), *codes], 2) * scale
    rows = layer.own_in(layer.own_norm(x)).unflatten(-1, (3, *layer.shape))
    queries, keys, values = rows.transpose(-2, -4).unbind(-3)
    mixed = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    x = x[:, :, -1] + layer.own_out(mixed[..., -1, :].flatten(-2))
    found = laws.paired(pairs, table.x, table.asked, 120)
    assert difference(found[0], x.flatten(0, 1)) < 2e-6
    assert difference(found[1], layer.query(layer.context_norm(x)).flatten(0, 1)) < 2e-6


@torch.no_grad()
@pytest.mark.parametrize("rows", [1, 6, 12, 25])
def test_the_feed_forward_net_takes_a_few_rows_at_a_time(rows, monkeypatch):
    how = weights_of(small(), torch.float32).products
    x, a, weight = torch.randn(25, 32), torch.randn(25, 32), torch.randn(2, 48, 32)
    bias = torch.randn(48)
    expected = x + torch.relu(a @ weight[0].T + bias) @ weight[1]
    monkeypatch.setattr(products, "FEED_ROWS", rows)
    how.feed(x, a, weight[0], bias, weight[1].T)
    torch.testing.assert_close(x, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_float8_products_follow_their_law():
    model = small(width=64, feed=128)
    reading = model.read(some_sids(2, 5), torch.tensor([5, 2]))
    score = WideScorer(weights_of(model, torch.bfloat16, products="float8"), 2, WIDTHS, 6)
    score.load(reading.context, reading.lengths)
    hidden, head = score(1, first_beams(2))
    expected = spelt(model, reading, first_beams(2).tokens) @ model.heads[0].weight.T
    assert 1e-3 < difference(hidden @ head.T, expected) < 0.1


def test_what_it_does_not_serve_is_refused():
    refused: list[tuple[dict[str, Any], str]] = [
        ({"head_width": 96}, "heads of 64 and 128"),
        ({"width": 40}, "divide by 16"),
        ({"layers": 0}, "at least 1"),
        ({"dropout": 1.0}, "from 0 up to 1"),
        ({"dropout": "x"}, "dropout is 'x'; give a share"),
        ({"width": "x"}, "width of a Wide model must be an integer, not 'x'"),
        ({"heads": 1.5}, "heads of a Wide model must be an integer, not 1.5"),
        ({"feed": None}, "feed of a Wide model must be an integer, not None"),
        ({"encoder_heads": 3}, "divide by encoder_heads"),
    ]
    for sizes, said in refused:
        with pytest.raises(InputError, match=said):
            WideConfig(**sizes)
    with pytest.raises(InputError, match="1 levels; a Wide model spells from 2 to 8"):
        check_codebooks((5,))
    with pytest.raises(InputError, match="Level 2 has a codebook of 16385"):
        check_codebooks((5, 16_385))
    model = small()
    with pytest.raises(InputError, match="float64"):
        weights_of(model, torch.float64)
    with pytest.raises(InputError, match="bfloat16 and float16, not float32"):
        weights_of(model, torch.float32, kernels=True)
    with pytest.raises(InputError, match="float8 products answer in bfloat16"):
        weights_of(model, torch.float32, products="float8")
    weights = weights_of(model, torch.float32)
    with pytest.raises(InputError, match="'paged', which is a Triton kernel"):
        WideScorer(weights, 1, WIDTHS, 7, own="paged")
    with pytest.raises(InputError, match="context is 'triton'"):
        WideScorer(weights, 1, WIDTHS, 7, context="triton")
    with pytest.raises(InputError, match="own is 'fast'"):
        WideScorer(weights, 1, WIDTHS, 7, own=cast(Any, "fast"))
    with pytest.raises(InputError, match="3 widths"):
        WideScorer(weights, 1, WIDTHS[:3], 7)
    score = WideScorer(weights, 2, WIDTHS, 7, lengths=False)
    for context, lengths in [
        (torch.zeros(2, 6, 32), None),
        (torch.zeros(2, 7, 32), torch.tensor([7, 7])),
        (torch.zeros(3, 7, 32), None),
        (torch.zeros(2, 7, 16), None),
    ]:
        with pytest.raises(InputError, match="The context"):
            score.load(context, lengths)
    with pytest.raises(InputError, match="Step 2 has 2 requests of 5 beams"):
        score(2, next_beams(first_beams(2), 5, 5))
