"""Tiny random models of transformers, decoded by the engine, against the specification."""

from typing import Any

import numpy as np
import pytest
import torch

from beamsieve.catalog import Catalog
from beamsieve.engine import Engine
from beamsieve.errors import InputError
from beamsieve.index import Index
from beamsieve_spec import Trie
from beamsieve_spec.search import search as spec_search

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install 'beamsieve[hf]'"
)

from beamsieve.models.huggingface import HuggingFaceScorer, token_ranges  # noqa: E402

CODEBOOKS = (5, 6, 4)
FIRST = 11
IDS = token_ranges(FIRST, CODEBOOKS)
VOCABULARY = FIRST + sum(CODEBOOKS)
DRAWN = np.random.default_rng(0).integers(0, CODEBOOKS, (40, 3))
SIDS = [(a, b, c) for a, b, c in np.unique(DRAWN, axis=0).tolist()]
# Prompts of several lengths; 0 pads.
RIGHT = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0], [2, 9, 10, 0]])
LEFT = torch.tensor([[3, 4, 5, 6], [0, 0, 7, 8], [0, 2, 9, 10]])


def a_t5() -> Any:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2,
        decoder_start_token_id=0, pad_token_id=0, dropout_rate=0.0,
    )  # fmt: skip
    return sharpened(transformers.T5ForConditionalGeneration(config))


def a_gpt2() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=16, n_embd=16, n_layer=2, n_head=2
    )
    return sharpened(transformers.GPT2LMHeadModel(config))


def sharpened(model: Any) -> Any:
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(4)
    return model.eval()


@torch.no_grad()
def whole_forward(model: Any, prompt: torch.Tensor, request: int, spelt: list[int]) -> Any:
    """Logits of the next token without any cache, from one prompt and the codes spelt so far."""
    own = prompt[request][prompt[request] > 0][None]
    tokens = torch.tensor([[IDS[level][code] for level, code in enumerate(spelt)]]).long()
    tokens = tokens.reshape(1, -1)
    if model.config.is_encoder_decoder:
        start = torch.zeros((1, 1), dtype=torch.int64)
        said = model(input_ids=own, decoder_input_ids=torch.cat([start, tokens], 1))
    else:
        said = model(input_ids=torch.cat([own, tokens], 1))
    return said.logits[0, -1, list(IDS[len(spelt)])].double().numpy()


CASES = [(a_t5, RIGHT), (a_gpt2, LEFT)]


@pytest.mark.parametrize(("make", "prompt"), CASES, ids=["t5", "gpt2"])
@pytest.mark.parametrize("backend", ["torch:cpu", "reference"])
@pytest.mark.parametrize("prefixes", [None, [[SIDS[0][0]]] * 3], ids=["root", "prefix"])
def test_it_is_decoded_as_the_specification_says(make, prompt, backend, prefixes):
    model = make()
    index = Index.build(Catalog.from_arrays(SIDS, codebooks=CODEBOOKS))
    trie = Trie(SIDS, codebooks=CODEBOOKS)
    widths = [4, 6, 5][len(prefixes[0]) if prefixes else 0 :]

    def reference(step: int, beams: Any) -> Any:
        logits = np.zeros((*beams.rows.shape, CODEBOOKS[step - 1]))
        for b, m in np.argwhere(beams.rows != -1):
            logits[b, m] = whole_forward(model, prompt, b, beams.tokens[b, m].tolist())
        return logits

    wanted = spec_search(trie, reference, widths, 3, prefixes)
    score = HuggingFaceScorer(model, IDS, prompt, (prompt > 0).long())
    engine = Engine(index, backend)
    for _ in range(2):  # one scorer serves one search after the other
        found = engine.search(score, widths, 3, prefix=prefixes)
        assert np.array_equal(np.asarray(found.tokens), wanted.tokens)
        assert np.array_equal(np.asarray(found.rows), wanted.rows)
        np.testing.assert_allclose(np.asarray(found.scores), wanted.scores, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "changes", "said"),
    [
        (a_gpt2, {"input_ids": RIGHT, "attention_mask": (RIGHT > 0).long()}, "padded on the right"),
        (a_gpt2, {"input_ids": LEFT[:, :0]}, "A prompt is empty"),
        (a_gpt2, {"ids": token_ranges(FIRST + 1, CODEBOOKS)}, "Level 3's tokens"),
        (a_t5, {"ids": [range(4), range(0), range(2)]}, "Level 2's tokens"),
    ],
)
def test_what_cannot_be_decoded_is_refused(make, changes, said):
    given = {"ids": IDS, "input_ids": LEFT, **changes}
    with pytest.raises(InputError, match=said):
        HuggingFaceScorer(make(), **given)


def test_a_start_token_must_be_known():
    model = a_t5()
    model.config.decoder_start_token_id = None
    with pytest.raises(InputError, match="give decoder_start"):
        HuggingFaceScorer(model, IDS, RIGHT)
    HuggingFaceScorer(model, IDS, RIGHT, decoder_start=0)


def test_a_search_of_other_requests_or_levels_than_the_scorers_is_refused():
    index = Index.build(Catalog.from_arrays(SIDS, codebooks=CODEBOOKS))
    engine = Engine(index, "torch:cpu")
    for ids, batch in ((IDS, 4), (IDS, 1), (IDS[:2], 3)):
        score = HuggingFaceScorer(a_gpt2(), ids, LEFT, (LEFT > 0).long())
        with pytest.raises(
            InputError, match=r"3 prompts and tokens of . levels; step .* was asked"
        ):
            engine.search(score, [4, 4, 4], batch=batch)
    with pytest.raises(InputError, match=r"attention_mask has the shape \(3, 3\)"):
        HuggingFaceScorer(a_gpt2(), IDS, LEFT, LEFT[:, 1:])
