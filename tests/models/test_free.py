"""Search without a filter, and telling legal semantic IDs from others."""

import itertools

import numpy as np
import torch

from beamsieve.catalog import Catalog
from beamsieve.index import Index
from beamsieve.models.config import ModelConfig
from beamsieve.models.deco import Deco
from beamsieve.models.free import LegalSids, search_freely


@torch.no_grad()
def test_a_free_search_wide_enough_finds_the_best_of_all_sequences():
    torch.manual_seed(1)
    codebooks = (3, 4, 5)
    model = Deco(ModelConfig(width=16, heads=2, decoder_width=16, longest=4), codebooks).eval()
    for head in model.heads:
        head.weight.mul_(20)
    reading = model.read(torch.randint(0, 3, (2, 2, 3)), torch.tensor([2, 2]))
    concepts = reading.concepts
    assert concepts is not None
    every = torch.tensor(list(itertools.product(*map(range, codebooks))))
    beams = search_freely(model, reading, width=60)
    assert beams.tokens.shape == (2, 60, 3)
    for request in range(2):
        hidden = model.spell(concepts[request].expand(60, -1, -1), every[:, :2])
        levels = [
            torch.log_softmax(head(hidden[:, level]), -1).gather(1, every[:, level : level + 1])
            for level, head in enumerate(model.heads)
        ]
        best = torch.cat(levels, 1).sum(1).sort(descending=True)
        torch.testing.assert_close(beams.scores[request], best.values)
        assert torch.equal(beams.tokens[request, :20], every[best.indices[:20]])


def check_all(sids, codebooks, **options):
    index = Index.build(Catalog.from_arrays(sids, codebooks=codebooks, **options))
    every = np.array(list(itertools.product(*(range(size) for size in index.codebooks))))
    legal = LegalSids(index)(every)
    return index, every, legal


def test_legal_is_what_the_index_contains():
    rng = np.random.default_rng(0)
    sids = rng.integers(0, (4, 3, 5), (20, 3))
    index, every, legal = check_all(sids, (4, 3, 5))
    assert legal.tolist() == [index.contains(sid) for sid in every.tolist()]
    assert 0 < legal.sum() < len(legal)
    assert LegalSids(index)(every.reshape(4, 15, 3)).shape == (4, 15)
    outside = np.array([[-1, 0, 0], [0, 3, 0], [9, 9, 9]])
    assert not LegalSids(index)(outside).any()


def test_sequences_that_begin_with_a_shorter_semantic_id_are_legal():
    _, every, legal = check_all([[0, -1, -1], [1, 0, -1], [1, 1, 2]], (2, 2, 3))
    wanted = [t[0] == 0 or t[1] == 0 or t[2] == 2 for t in every.tolist()]
    assert legal.tolist() == wanted


def test_with_end_tokens_legal_sequences_end_with_them():
    index, every, legal = check_all([[0, -1], [0, 1]], (1, 2), end_token=True)
    assert index.codebooks == (2, 3, 1)
    found = every[legal].tolist()
    assert found == [[0, 1, 0], [0, 2, 0]]
