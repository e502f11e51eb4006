"""Changes of layout that change no value, and caches that hold what they should."""

import pytest
import torch
from torch.nn import functional

from beamsieve.models.wide import laws


def test_beam_as_query_moves_every_element_to_its_place_and_back(monkeypatch):
    """Equations 13 and 14 of GRACE, element by element: what the library's attention is given."""
    batch, beams, heads, columns, width = 3, 5, 2, 7, 4
    size = batch * beams * heads * width
    queries = torch.arange(size).view(batch, beams, heads, width)  # no number twice
    keys = torch.arange(size, size + batch * columns * heads * width)
    keys = keys.view(batch, columns, heads, width)
    values = -keys
    given = []

    def noted(queries, keys, values, attn_mask=None):
        given.append((queries, keys, values))
        return queries * 10

    monkeypatch.setattr(functional, "scaled_dot_product_attention", noted)
    answers = [law(queries, keys, values, None) for law in (laws.per_beam, laws.beam_as_query)]
    (flat, copied, copied_values), (moved, kept, kept_values) = given
    assert flat.shape == (batch * beams, heads, 1, width)
    assert moved.shape == (batch, heads, beams, width)
    for b in range(batch):
        for m in range(beams):
            for h in range(heads):
                assert torch.equal(moved[b, h, m], flat[b * beams + m, h, 0])
                assert torch.equal(kept[b, h], copied[b * beams + m, h])
                assert torch.equal(kept_values[b, h], copied_values[b * beams + m, h])
    for answer in answers:  # and back
        assert torch.equal(answer, queries * 10)


@pytest.mark.parametrize("lengths", [None, [9, 4, 1]])
def test_beam_as_query_answers_what_the_generic_layout_answers(lengths):
    torch.manual_seed(0)
    queries = torch.randn(3, 5, 2, 8, dtype=torch.float64)
    keys, values = torch.randn(2, 3, 9, 2, 8, dtype=torch.float64)
    lengths = None if lengths is None else torch.tensor(lengths)
    generic = laws.per_beam(queries, keys, values, lengths)
    ours = laws.beam_as_query(queries, keys, values, lengths)
    torch.testing.assert_close(ours, generic, rtol=0, atol=1e-14)
    for b in range(3):
        count = 9 if lengths is None else lengths[b]
        weights = torch.softmax(
            torch.einsum("mhd,chd->hmc", queries[b], keys[b, :count]) * 8**-0.5, -1
        )
        by_hand = torch.einsum("hmc,chd->mhd", weights, values[b, :count])
        torch.testing.assert_close(ours[b], by_hand, rtol=0, atol=1e-13)


def test_all_caches_answer_alike():
    """Dense, paged and in place: one search's three tokens, reordered twice."""
    torch.manual_seed(1)
    heads, width, counts = 2, 8, (2, 4, 6)
    products = torch.randn(sum(counts), 3, heads, width)
    blocks = torch.zeros(sum(counts), 2, heads, width)
    ids = torch.arange(2, dtype=torch.int32)[:, None].repeat(1, 3)
    caches = torch.zeros(2, 3, 2, heads, width)
    first = 0
    for t, rows in enumerate(counts, 1):
        if t > 1:
            parents = torch.randint(0, counts[t - 2], (rows,))
            ids, caches = ids[parents].clone(), caches[:, :, parents].clone()
            ids[:, t - 1] = torch.arange(first, first + rows)
        product = products[first : first + rows]
        dense = laws.fused(product, caches[0], caches[1], t)
        paged = laws.paged(product, blocks[:, 0], blocks[:, 1], ids, t)
        in_place = laws.in_place(products, ids, t)
        torch.testing.assert_close(paged, dense)
        torch.testing.assert_close(in_place, dense)
        again = laws.coalesced(product[:, 0], caches[0], caches[1], t)
        torch.testing.assert_close(again, dense)
        first += rows


def test_float8_rows_come_back_within_their_precision():
    torch.manual_seed(2)
    x = torch.randn(5, 64) * torch.tensor([[1e-3], [1.0], [50.0], [1e4], [0.0]])
    values, scales = laws.quantize(x)
    back = values.float() * scales
    error = (back - x).norm(dim=1)
    assert (error <= 0.04 * x.norm(dim=1)).all()
    assert torch.equal(back[4], torch.zeros(64))


def test_block_tables_copy_the_parents_ids_and_name_new_blocks():
    tokens = torch.tensor([[[3, 1], [0, 2]], [[4, 4], [-1, -1]]])
    parents = torch.tensor([[2, 0], [1, -1]])
    old = torch.tensor([[0, 2], [0, 3], [0, 4], [1, 5], [1, 6], [1, 7]], dtype=torch.int32)
    old = torch.cat([old, torch.full((6, 2), 99, dtype=torch.int32)], 1)
    bases = torch.tensor([0, 1, 6, 13], dtype=torch.int32)
    ids, first = laws.advance(tokens, parents, old, bases, 8)
    assert ids[:, :3].tolist() == [[0, 4, 8], [0, 2, 9], [1, 6, 10], [1, 5, 11]]
    assert first[:, :3].tolist() == [[0, 4, 7], [0, 1, 8], [0, 5, 10], [0, 1, 6]]
