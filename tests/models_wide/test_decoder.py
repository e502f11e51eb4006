"""The model on an engine: any batch through a few sizes, and what fills them up."""

from typing import Any, cast

import numpy as np
import pytest
import torch

import beamsieve as bs
from beamsieve.errors import InputError
from beamsieve.models.wide import WideDecoder

from .wide_given import CODEBOOKS, small, some_sids, spelt

WIDTHS = (4, 8, 8, 6)


@pytest.fixture(scope="module")
def engine():
    draw = np.random.default_rng(0)
    sids = np.stack([draw.integers(0, size, 300) for size in CODEBOOKS], 1)
    index = bs.Index.build(bs.Catalog.from_arrays(sids, codebooks=list(CODEBOOKS)))
    return bs.Engine(index, backend="torch:cpu")


def reading_of(model, batch):
    torch.manual_seed(batch)
    return model.read(some_sids(batch, 6), torch.randint(0, 7, (batch,)))


def hits(found):
    return [[(hit.item, round(hit.score, 4)) for hit in one] for one in found]


def test_a_search_gives_what_the_naive_decoder_gives(engine):
    model = small()
    reading = reading_of(model, 3)
    decoder = WideDecoder(model, engine, WIDTHS, 7, sizes=(3,))
    beams = decoder.search(reading.context, reading.lengths)
    naive = engine.search(
        lambda step, beams: (
            spelt(model, reading, beams.tokens),
            model.heads[step - 1].weight.detach(),
        ),
        WIDTHS,
        batch=3,
    )
    assert torch.equal(beams.tokens, naive.tokens)
    assert torch.equal(beams.parents, naive.parents)
    torch.testing.assert_close(beams.scores, naive.scores, rtol=1e-5, atol=1e-5)


def test_dead_requests_change_nothing(engine):
    """Three of four, bit for bit, whatever the fourth is; and alone within rounding."""
    model = small()
    reading = reading_of(model, 4)
    decoder = WideDecoder(model, engine, WIDTHS, 7, sizes=(4,))
    full = decoder.search(reading.context, reading.lengths)
    filled = decoder.search(reading.context[:3], reading.lengths[:3])
    for name in ("tokens", "scores", "rows", "parents", "count"):
        assert torch.equal(getattr(filled, name)[:3], getattr(full, name)[:3]), name
    alone = WideDecoder(model, engine, WIDTHS, 7, sizes=(1,))
    one = alone.decode(reading.context[1:2], reading.lengths[1:2], 5)
    assert hits(one) == hits(decoder.decode(reading.context[:3], reading.lengths[:3], 5))[1:2]


def test_any_batch_goes_through_the_sizes(engine):
    model = small()
    reading = reading_of(model, 7)
    few = WideDecoder(model, engine, WIDTHS, 7, sizes=(1, 4))
    found = few.decode(reading.context, reading.lengths, 5)
    assert len(found) == 7
    assert sorted(few._scorers) == [1, 4]
    each = [
        few.decode(reading.context[b : b + 1], reading.lengths[b : b + 1], 5)[0] for b in range(7)
    ]
    assert hits(found) == hits(each)


def test_targeting_goes_along(engine):
    model = small()
    reading = reading_of(model, 3)
    decoder = WideDecoder(model, engine, WIDTHS, 7, sizes=(4,))
    best = decoder.decode(reading.context, reading.lengths, 1)
    banned = [{"exclude": [one[0].item]} for one in best]
    found = decoder.decode(reading.context, reading.lengths, 3, [banned[0], None, banned[2]])
    assert next(hit.item for hit in found[1]) == best[1][0].item
    for b in (0, 2):
        assert best[b][0].item not in [hit.item for hit in found[b]]


def test_what_was_taken_is_said_and_what_cannot_run_is_refused(engine):
    model = small()
    taken = WideDecoder(model, engine, WIDTHS, 7).taken
    assert taken.attention == "plain: Triton's kernels run on cuda, not on cpu"
    assert taken.graph == "step by step: torch:cpu captures nothing"
    assert taken.own.startswith("plain")
    assert taken.context.startswith("plain")
    assert taken.opened == "one token: pairs would take 0.000 GiB, 0.000 are allowed"
    for allowed, said in [(13_440, "two tokens: 35 pairs"), (13_439, "one token: pairs would")]:
        some = WideDecoder(model, engine, WIDTHS, 7, table_bytes=allowed)
        assert some.taken.opened.startswith(said)
    made = WideDecoder(model, engine, WIDTHS, 7, own="generic", table_bytes=13_440)
    assert made.weights.pairs is None  # nothing would read them
    assert made.taken.opened == "nothing: own is 'generic', which makes every product"
    with pytest.raises(InputError, match="table_bytes must be at least 1, not -1"):
        WideDecoder(model, engine, WIDTHS, 7, table_bytes=-1)
    with pytest.raises(InputError, match="attention is 'triton', but Triton"):
        WideDecoder(model, engine, WIDTHS, 7, attention="triton")
    with pytest.raises(InputError, match="attention is 'fast'"):
        WideDecoder(model, engine, WIDTHS, 7, attention="fast")
    for sizes, said in [
        ((4, 1), "sizes are"),
        ((), "sizes are"),
        ((0, 1), "a size must be at least 1"),
        ((1.0, 2), "a size must be an integer"),
    ]:
        with pytest.raises(InputError, match=said):
            WideDecoder(model, engine, WIDTHS, 7, sizes=cast(Any, sizes))
    with pytest.raises(InputError, match="use the index that the model was trained on"):
        WideDecoder(small((5, 7, 9, 5)), engine, WIDTHS, 7)
    reading = reading_of(model, 3)
    decoder = WideDecoder(model, engine, WIDTHS, 7, sizes=(2,))
    with pytest.raises(InputError, match="from 1 to 2"):
        decoder.search(reading.context, reading.lengths)
    with pytest.raises(InputError, match="as many lengths"):
        decoder.search(reading.context[:2], reading.lengths)
    with pytest.raises(InputError, match="products is 'int8'"):
        WideDecoder(model, engine, WIDTHS, 7, products=cast(Any, "int8"))
    with pytest.raises(InputError, match="width must be an integer, not 'a'"):
        WideDecoder(model, engine, cast(Any, (4, "a", 4, 4)), 7)
    one = reading.context[:2]
    for context, lengths, said in [
        (one[0], None, r"context is \(7, 32\) of torch.float32; give floating"),
        (one.long(), None, "of torch.int64; give floating-point numbers"),
        ("text", None, "no array"),
        (one, [1, 8], "lengths go from 1 to 8; of 7 context tokens"),
        (one, [0, 7], "lengths go from 0 to 7"),
        (one, [1.0, 2.0], "one whole number per request"),
    ]:
        with pytest.raises(InputError, match=said):
            decoder.search(context, lengths)


def test_contexts_may_come_as_numpy_arrays_and_lengths_as_a_list(engine):
    model = small()
    reading = reading_of(model, 2)
    decoder = WideDecoder(model, engine, WIDTHS, 7, sizes=(2,))
    found = decoder.decode(reading.context.detach().numpy(), [2, 7], 5)
    assert hits(found) == hits(decoder.decode(reading.context, torch.tensor([2, 7]), 5))


def test_float8_products_take_bfloat16_by_themselves(engine):
    decoder = WideDecoder(small(), engine, WIDTHS, 7, sizes=(2,), products="float8")
    assert decoder.weights.dtype == torch.bfloat16
