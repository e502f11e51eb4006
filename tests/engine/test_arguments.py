"""Every refusal of the engine: one sentence, before the backend is called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import beamsieve as bs
from beamsieve.checks import LARGEST_STEP
from beamsieve.interface import Capabilities
from beamsieve_backends.torch_dense import TorchBackend


def hidden(batch=2, beams=1, size=6, dtype: Any = np.float32):
    return np.zeros((batch, beams, size), dtype)


@pytest.mark.parametrize("batch", [0, -1, 1.5, "2", True, None])
def test_a_batch_below_one_or_no_integer(engine, batch):
    with pytest.raises(bs.InputError, match="batch"):
        engine.begin(batch)


@pytest.mark.parametrize("width", [0, -3, 2.0, None, True])
def test_a_width_below_one_or_no_integer(engine, width):
    with pytest.raises(bs.InputError, match="width"):
        engine.step(engine.begin(1), width, logits=np.zeros((1, 1, 3), np.float32))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "exactly one"),
        ({"hidden": hidden(), "logits": np.zeros((2, 1, 3), np.float32)}, "exactly one"),
        ({"hidden": hidden()}, "needs head"),
        (
            {"logits": np.zeros((2, 1, 3), np.float32), "bias": np.zeros(3, np.float32)},
            "only the logits",
        ),
        (
            {"hidden": hidden(batch=3), "head": np.zeros((3, 6), np.float32)},
            r"hidden has the shape \(3, 1, 6\).*\(2, 1, d\)",
        ),
        (
            {"hidden": hidden(beams=2), "head": np.zeros((3, 6), np.float32)},
            "hidden has the shape",
        ),
        (
            {"hidden": np.zeros((2, 6), np.float32), "head": np.zeros((3, 6), np.float32)},
            "hidden has the shape",
        ),
        (
            {"hidden": hidden(), "head": np.zeros((4, 6), np.float32)},
            r"head has the shape \(4, 6\); level 1 has a codebook of 3 tokens",
        ),
        ({"hidden": hidden(), "head": np.zeros((3, 5), np.float32)}, r"it must be \(3, 6\)"),
        ({"hidden": hidden(), "head": np.zeros((3, 6), np.float16)}, "one dtype"),
        (
            {
                "hidden": hidden(),
                "head": np.zeros((3, 6), np.float32),
                "bias": np.zeros(4, np.float32),
            },
            r"bias has the shape \(4,\); level 1 needs \(3,\)",
        ),
        ({"logits": np.zeros((2, 1, 4), np.float32)}, r"logits has the shape \(2, 1, 4\)"),
        ({"logits": np.zeros((2, 1, 3), np.int64)}, "logits is int64"),
        ({"logits": np.zeros((2, 1, 3), np.float64)}, "logits is float64.*float32, bfloat16 or"),
        (
            {
                "hidden": hidden(dtype=np.float64),
                "head": np.zeros((3, 6), np.float64),
            },
            "hidden is float64",
        ),
        ({"logits": [[[0.0, 0.0, 0.0]]] * 2}, "logits is a list; give a tensor or array"),
    ],
)
def test_a_step_that_does_not_fit(engine, arguments, says):
    with pytest.raises(bs.InputError, match=says):
        engine.step(engine.begin(2), 4, **arguments)


@pytest.mark.parametrize("name", ["bonus", "nudge"])
def test_guidance_of_another_shape_or_dtype(engine, name):
    logits = np.zeros((2, 1, 3), np.float32)
    with pytest.raises(bs.InputError, match=f"{name} has the shape"):
        engine.step(engine.begin(2), 4, logits=logits, **{name: np.zeros((2, 3), np.float32)})
    with pytest.raises(bs.InputError, match=f"{name} is float64; it must be float32"):
        engine.step(engine.begin(2), 4, logits=logits, **{name: np.zeros((2, 1, 3))})


def test_a_step_after_the_last(engine):
    beams = engine.search(
        lambda step, beams: np.zeros((1, beams.width, (3, 4, 5)[step - 1]), np.float32),
        widths=[2, 2, 2],
        batch=1,
    )
    with pytest.raises(bs.InputError, match="All 3 levels"):
        engine.step(beams, 2, logits=np.zeros((1, 2, 5), np.float32))


@pytest.mark.parametrize("config", ["torch:cpu", "reference"])
def test_an_array_on_another_device(index, config):
    engine = bs.Engine(index, backend=config)
    with pytest.raises(bs.InputError, match=r"logits is on meta|logits cannot be read"):
        engine.step(engine.begin(1), 2, logits=torch.zeros(1, 1, 3, device="meta"))


@pytest.mark.parametrize(
    ("prefix", "says"),
    [
        ([(0,)], "1 prefixes for a batch of 2"),
        ([(0,), (0, 1)], "prefix of request 1 has 2 tokens"),
        ([(0, 1, 2, 3)] * 2, "a semantic ID has 3"),
        ([("a",), ("b",)], "no integer"),
    ],
)
def test_prefixes_that_do_not_fit(engine, prefix, says):
    with pytest.raises(bs.InputError, match=says):
        engine.begin(2, prefix=prefix)


def test_results_before_the_end_and_k_below_one(engine):
    beams = engine.begin(1)
    with pytest.raises(bs.InputError, match="0 of 3 levels"):
        engine.results(beams)
    with pytest.raises(bs.InputError, match="k must be at least 1"):
        engine.results(beams, k=0)


def test_search_needs_a_width_per_level_and_a_pair_or_triple(engine):
    with pytest.raises(bs.InputError, match="2 entries, but 3 levels"):
        engine.search(lambda step, beams: None, widths=[1, 1], batch=1)
    with pytest.raises(bs.InputError, match="a tuple of 1"):
        engine.search(lambda step, beams: (hidden(),), widths=[1, 1, 1], batch=1)


def test_select_wants_keys_of_the_candidates_shape(engine):
    beams = engine.begin(1)
    found = engine.candidates(beams, logits=np.zeros((1, 1, 3), np.float32))
    with pytest.raises(bs.InputError, match="key has the shape"):
        engine.select(beams, found, 2, key=np.zeros((1, 1, 9), np.float32))
    with pytest.raises(bs.InputError, match="key is float64"):
        engine.select(beams, found, 2, key=np.zeros((1, 1, 3)))


def test_an_unknown_normalizer(index):
    with pytest.raises(bs.InputError, match="all, catalog, eligible"):
        bs.Engine(index, backend="reference", normalize="half")  # type: ignore[arg-type]


class Modest(TorchBackend):
    """A backend that can do less."""

    name = "modest"
    can = Capabilities()

    @property
    def capabilities(self):
        return self.can


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"largest_codebook": 4}, "codebooks of 4 tokens at most, and this index has one of 5"),
        ({"normalizers": ("all",)}, "cannot normalize over 'catalog'"),
    ],
)
def test_a_backend_that_cannot_serve_the_index_is_refused_at_once(index, limits, says):
    backend = Modest("cpu")
    backend.can = replace(Capabilities(), **limits)
    with pytest.raises(bs.BackendError, match=says):
        bs.Engine(index, backend=backend)


def test_several_lengths_need_a_backend_that_can():
    ragged = bs.Index.build(bs.Catalog.from_arrays(np.array([[0, -1], [1, 0]]), codebooks=(2, 1)))
    backend = Modest("cpu")
    backend.can = Capabilities(variable_length=False)
    with pytest.raises(bs.BackendError, match="several lengths"):
        bs.Engine(ragged, backend=backend)


@pytest.mark.parametrize(
    ("limits", "call", "says"),
    [
        ({"largest_width": 2}, {"width": 3}, "keeps 2 beams at most, not 3"),
        ({"guidance": ()}, {"bonus": np.zeros((1, 1, 3), np.float32)}, "offers no bonus"),
        ({"guidance": ()}, {"nudge": np.zeros((1, 1, 3), np.float32)}, "offers no nudge"),
    ],
)
def test_what_the_backend_lacks_is_refused_in_the_call(index, limits, call, says):
    backend = Modest("cpu")
    backend.can = replace(Capabilities(), **limits)
    engine = bs.Engine(index, backend=backend)
    logits = np.zeros((1, 1, 3), np.float32)
    with pytest.raises(bs.BackendError, match=says):
        engine.step(engine.begin(1), **{"width": 2, "logits": logits, **call})


def test_the_halves_are_refused_where_they_are_missing(index):
    backend = Modest("cpu")
    backend.can = Capabilities(guidance=("bonus",))
    engine = bs.Engine(index, backend=backend)
    with pytest.raises(bs.BackendError, match="two halves"):
        engine.candidates(engine.begin(1), logits=np.zeros((1, 1, 3), np.float32))


@pytest.mark.parametrize(
    "prefix", [[1, 2], np.array([1, 2]), [None, [1]], "12", ["1", "2"], [b"1", b"2"], 5, {0: [1]}]
)
def test_a_prefix_that_is_no_list_of_lists(engine, prefix):
    for batch in (2, None):
        with pytest.raises(bs.InputError, match="one prefix per request"):
            engine.begin(batch, prefix=prefix)


@pytest.mark.parametrize("requests", [5, "ab", {"country": "US"}, iter([None])])
def test_requests_that_are_no_list(engine, requests):
    for batch in (2, None):
        with pytest.raises(bs.RequestError, match=r"requests is .*; give a list"):
            engine.begin(batch, requests=requests)


@pytest.mark.parametrize("widths", [5, None, "333", np.array(3)])
def test_widths_that_are_no_list(engine, heads, widths):
    with pytest.raises(bs.InputError, match="give a list of one width per level"):
        engine.search(lambda step, beams: None, widths=widths, batch=1)
    with pytest.raises(bs.InputError, match="give a list of one width per level"):
        engine.warm_up(1, widths, heads)


def test_a_score_that_is_no_function(engine):
    with pytest.raises(bs.InputError, match="score is a NoneType"):
        engine.search(None, widths=[1, 1, 1], batch=1)


@pytest.mark.parametrize("junk", [None, "index.safetensors", 5])
def test_an_index_that_is_none(engine, junk):
    with pytest.raises(bs.InputError, match="give an Index"):
        bs.Engine(junk, backend="torch:cpu")
    kept = engine.index
    with pytest.raises(bs.InputError, match="give an Index"):
        engine.replace(junk)
    assert engine.index is kept


@pytest.mark.parametrize("junk", [5, TorchBackend, ["torch"]])
def test_a_backend_that_is_none(index, junk):
    with pytest.raises(bs.BackendError, match="give a config string"):
        bs.Engine(index, backend=junk)


@pytest.mark.parametrize("junk", [None, "plan.json", {}])
def test_a_plan_that_is_none(engine, junk):
    with pytest.raises(bs.InputError, match="give what warm_up returned"):
        engine.use_plan(junk)


@pytest.mark.parametrize("config", ["torch:cpu", "reference"])
def test_a_sparse_tensor(index, config):
    engine = bs.Engine(index, backend=config)
    with pytest.raises(bs.InputError, match=r"logits (is a sparse|cannot be read)"):
        engine.step(engine.begin(1), 2, logits=torch.zeros(1, 1, 3).to_sparse())


@pytest.mark.parametrize("config", ["torch:cpu", "reference"])
@pytest.mark.parametrize("width", [2**63, 10**9, LARGEST_STEP // 2 + 1])
def test_more_places_than_a_step_holds(index, config, width):
    engine = bs.Engine(index, backend=config)
    beams = engine.begin(2)
    logits = np.zeros((2, 1, 3), np.float32)
    says = f"a step holds {LARGEST_STEP} at most"
    with pytest.raises(bs.InputError, match=says):
        engine.step(beams, width, logits=logits)
    with pytest.raises(bs.InputError, match=says):
        engine.select(beams, engine.candidates(beams, logits=logits), width)
    with pytest.raises(bs.InputError, match=says):
        engine.search(lambda step, beams: logits, widths=[2, 2, width], batch=2)
    with pytest.raises(bs.InputError, match=says):
        engine.begin(2 * width)


@pytest.mark.parametrize("config", ["torch:cpu", "reference"])
def test_masked_cells_are_not_read_as_what_lies_under_the_mask(index, config):
    engine = bs.Engine(index, backend=config)
    logits = np.ma.masked_array(np.zeros((1, 1, 3), np.float32), mask=[[[False, True, False]]])
    with pytest.raises(bs.InputError, match="logits has masked cells"):
        engine.step(engine.begin(1), 2, logits=logits)
    engine.step(engine.begin(1), 2, logits=np.ma.masked_array(logits.data))


def test_why_an_array_cannot_be_read_ends_in_one_full_stop(engine):
    with pytest.raises(bs.InputError, match=r"cannot be read as a tensor: .*[^.]\.$") as refused:
        engine.step(engine.begin(1), 2, logits=np.zeros((1, 1, 3), object))
    assert "\n" not in str(refused.value)


def test_masked_heads_and_keys_are_refused_everywhere(engine):
    head = np.ma.masked_array(np.ones((3, 6), np.float32))
    head[1, 2] = np.ma.masked
    with pytest.raises(bs.InputError, match="head has masked cells"):
        engine.prepare_head(head)
    with pytest.raises(bs.InputError, match="head has masked cells"):
        engine.warm_up(2, [2] * engine.index.length, head)
    beams = engine.begin(2)
    found = engine.candidates(beams, logits=np.zeros((2, 1, 3), np.float32))
    key = np.ma.masked_array(np.zeros(tuple(found.rows.shape), np.float32))
    key[0, 0, 0] = np.ma.masked
    with pytest.raises(bs.InputError, match="key has masked cells"):
        engine.select(beams, found, 2, key)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("projection", ["full", "selective", "compiled"])
def test_the_default_dtype_of_torch_changes_nothing(engine, dtype, projection):
    rng = np.random.default_rng(0)
    said = [
        {
            "hidden": rng.standard_normal((2, places, 6)).astype(np.float32),
            "head": rng.standard_normal((size, 6)).astype(np.float32),
        }
        for places, size in ((1, 3), (3, 4))
    ]

    def decoded():
        opened = bs.Engine(engine.index, backend=f"torch:cpu?projection={projection}")
        beams = opened.begin(2)
        for given in said:
            beams = opened.step(beams, 3, **given)
        return beams.tokens.tolist(), beams.scores.tolist()

    expected = decoded()
    torch.set_default_dtype(dtype)
    try:
        assert decoded() == expected
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_tensor_whose_sign_is_still_to_be_turned_is_read_right(engine):
    head = torch.complex(torch.zeros(3, 6), torch.arange(18.0).reshape(3, 6)).conj().imag
    assert head.is_neg()
    for backend in ("torch:cpu", "reference"):
        opened = bs.Engine(engine.index, backend=backend)
        mine = opened.step(opened.begin(2), 2, hidden=hidden() + 1, head=head)
        right = opened.step(
            opened.begin(2), 2, hidden=hidden() + 1, head=head.resolve_neg().clone()
        )
        assert mine.tokens.tolist() == right.tokens.tolist()
        assert mine.tokens.tolist() == [[[0], [1]]] * 2
