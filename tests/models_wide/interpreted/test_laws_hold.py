"""Each kernel against its law, on tiny shapes that leave tiles ragged."""

import pytest
import torch

from beamsieve.models.wide import WideConfig, WideScorer, calls, laws, weights_of
from beamsieve.models.wide.model import Wide

ROWS, HEADS, LENGTH = 5, 2, 4
NEAR = {torch.bfloat16: 1e-2, torch.float16: 1e-3}  # the interpreter cuts bfloat16 off


def near(found, expected, dtype):
    expected = expected.float()
    error = (found.float() - expected).norm() / expected.norm()
    assert error <= NEAR[dtype], float(error)


@pytest.fixture(params=[(torch.bfloat16, 64), (torch.float16, 128)], ids=str)
def kind(request):
    torch.manual_seed(0)
    return request.param


@pytest.mark.parametrize("t", [1, 4])
def test_self_attention(kind, t):
    dtype, width = kind
    products = torch.randn(20, 3, HEADS, width).to(dtype)
    product = products[:ROWS]
    caches = torch.randn(2, LENGTH, ROWS, HEADS, width).to(dtype)
    expected = caches.clone()
    wanted = laws.fused(product, expected[0], expected[1], t)
    near(calls.fused(product, caches[0], caches[1], t), wanted, dtype)
    assert torch.equal(caches, expected)
    queries = product[:, 0].contiguous()
    near(calls.coalesced(queries, caches[0], caches[1], t), wanted, dtype)
    ids = torch.randint(0, 12, (ROWS, LENGTH), dtype=torch.int32)
    ids[:, t - 1] = torch.arange(12, 12 + ROWS)
    blocks = products[:, 1:].clone()
    expected = blocks.clone()
    wanted = laws.paged(product, expected[:, 0], expected[:, 1], ids, t)
    near(calls.paged(product, blocks[:, 0], blocks[:, 1], ids, t), wanted, dtype)
    assert torch.equal(blocks, expected)
    wanted = laws.in_place(products, ids, t)
    near(calls.in_place(products, ids, t), wanted, dtype)
    order = torch.randperm(ROWS).int()
    near(calls.in_place(products, ids, t, order=order), wanted, dtype)


@pytest.mark.parametrize("columns", [7, 130])
@pytest.mark.parametrize("lengths", [None, [7, 3]])
def test_cross_attention(kind, columns, lengths):
    dtype, width = kind
    queries = torch.randn(2, ROWS, HEADS, width).to(dtype)
    kept = torch.randn(2, columns, 2, HEADS, width).to(dtype)
    keys, values = kept[:, :, 0], kept[:, :, 1]
    lengths = None if lengths is None else torch.tensor(lengths, dtype=torch.int32)
    tile = {"ROWS": 16, "TILES": 1, "warps": 4, "stages": 1}
    found = calls.context(queries, keys, values, lengths, tile)
    near(found, laws.beam_as_query(queries, keys, values, lengths), dtype)


def test_beams_of_several_tiles_ask_one_context():
    queries, kept = torch.randn(1, 70, 1, 64).half(), torch.randn(1, 9, 2, 1, 64).half()
    found = calls.context(queries, kept[:, :, 0], kept[:, :, 1], None)
    wanted = laws.beam_as_query(queries, kept[:, :, 0], kept[:, :, 1], None)
    near(found, wanted, torch.float16)


def test_no_context_at_all_answers_nothing():
    queries, kept = torch.ones(1, 2, 1, 64).half(), torch.ones(1, 3, 2, 1, 64).half()
    lengths = torch.zeros(1, dtype=torch.int32)
    found = calls.context(queries, kept[:, :, 0], kept[:, :, 1], lengths)
    assert torch.equal(found, torch.zeros_like(queries))


def test_norms_and_float8_rows(kind):
    dtype, _ = kind
    x, added = torch.randn(2, 7, 48).to(dtype)
    near(calls.norm(x), laws.norm(x.float()), dtype)
    total = x.clone()
    near(calls.norm(total, added), laws.norm(x.float() + added.float()), dtype)
    near(total, x.float() + added.float(), dtype)
    values, scales = calls.quantize(x)
    error = (values.float() * scales - x.float()).norm() / x.float().norm()
    assert error < 0.08  # the interpreter cuts off; rounding leaves 0.03
    values, scales = calls.quantize(x, relu=True)
    positive = x.float().clamp(min=0)
    assert (values.float() * scales - positive).norm() < 0.08 * positive.norm()


def test_block_tables_and_embeddings():
    codes = torch.randn(11, 48).half()
    tokens = torch.randint(0, 11, (2, 3, 2), dtype=torch.int32)
    parents = torch.tensor([[0, 1, 1], [1, 0, -1]])
    tokens[1, 2] = -1
    old = torch.randint(0, 50, (4, LENGTH), dtype=torch.int32)
    bases = torch.tensor([0, 1, 12, 30], dtype=torch.int32)
    ids, first_ids, x = calls.advance(tokens, parents, old, bases, 100, codes)
    wanted, first_wanted = laws.advance(tokens, parents, old, bases, 100)
    assert torch.equal(ids[:, :3], wanted[:, :3])
    assert torch.equal(first_ids[:, :3], first_wanted[:, :3])
    assert torch.equal(x, codes[tokens[..., -1].clamp(min=0).long()].view(6, -1))
    pairs, asked = torch.randn(11 * 11, 48).half(), torch.randn(11 * 11, 64).half()
    *both, x, queries = calls.advance_paired(tokens, parents, old, bases, 100, pairs, asked, 11)
    assert torch.equal(both[0][:, :3], wanted[:, :3])
    assert torch.equal(both[1][:, :3], first_wanted[:, :3])
    for made, law in zip((x, queries), laws.paired(tokens, pairs, asked, 11), strict=True):
        assert torch.equal(made, law)


def test_rows_behind_the_first_token_are_all_made_and_then_taken():
    tokens = torch.randint(0, 5, (2, 3, 1), dtype=torch.int32)
    tokens[1, 2] = -1
    hidden = torch.randn(2 * 6, 48).half()
    ids, rows = calls.second(tokens, hidden, LENGTH)
    wanted, rows_wanted = laws.second(tokens, hidden, LENGTH)
    assert torch.equal(ids[:, :2], wanted[:, :2])
    assert torch.equal(rows, rows_wanted)
    assert torch.equal(ids[:3, 1] - 1, tokens[0, :, 0])
    assert ids[3:, 0].tolist() == [6, 6, 6]
    x, asked = torch.randn(6, 48), torch.randn(6, 64)
    for made, wanted in zip(calls.repeated(x, asked, 3), laws.repeated(x, asked, 3), strict=True):
        assert torch.equal(made, wanted)


@torch.no_grad()
@pytest.mark.parametrize(
    ("own", "first", "table_bytes"),
    [
        ("coalesced", 3, 0), ("fused", 3, 0), ("paged", 3, 0), ("in_place", 3, 0),
        ("in_place", 6, 1 << 20),
    ],
)  # fmt: skip
def test_a_whole_decode(own, first, table_bytes):
    widths = (first, 2, 2)
    codebooks = (5, 7, 4)
    config = WideConfig(width=32, layers=2, feed=48, encoder_heads=2, longest=6)
    model = Wide(config, codebooks).eval()
    context = torch.randn(2, 3, 32)
    plain = WideScorer(weights_of(model, torch.float32), 2, widths, 3, own="plain")
    kernels = WideScorer(
        weights_of(model, torch.float16, kernels=True, table_bytes=table_bytes), 2, widths, 3,
        own=own, context="triton",
    )  # fmt: skip
    plain.load(context)
    kernels.load(context)

    class Beams:
        tokens = torch.empty(2, 1, 0, dtype=torch.int32)
        parents = torch.full((2, 1), -1)

    beams = Beams()
    for step, width in enumerate(widths, 1):
        near(kernels(step, beams)[0], plain(step, beams)[0], torch.bfloat16)
        places = beams.parents.shape[1]
        beams.parents = torch.randint(0, places, (2, width))
        before = beams.tokens.gather(1, beams.parents[..., None].expand(-1, -1, step - 1))
        new = torch.randint(0, codebooks[step - 1], (2, width, 1), dtype=torch.int32)
        beams.tokens = torch.cat([before, new], -1)
