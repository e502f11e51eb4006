"""Targeting in the kernels, beside the torch backend's, which the suite compares with the law."""

import numpy as np
import pytest

from beamsieve.catalog import Catalog
from beamsieve.engine import Engine
from beamsieve.index import Index
from beamsieve.targeting import Attribute
from beamsieve_backends.torch_dense import TorchBackend
from beamsieve_backends.triton_slots import TritonBackend
from beamsieve_backends.triton_slots.tuning import TUNING

REQUESTS = [
    {"country": "DE", "place": [f"p{n}" for n in range(70)], "exclude": ["i1", "i2"]},
    {"place": ["p3", "p4"], "allow": [f"i{n}" for n in range(0, 150, 3)]},
    None,
]


def an_index(layout, parts):
    draw = np.random.default_rng(1)
    sids = np.unique(draw.integers(0, [9, 40, 30], (150, 3)), axis=0)
    rules = [
        {
            "country": {"accepts": ["DE", "FR"][n % 2 :]},
            "place": {"accepts": [f"p{m}" for m in range(n % 90, n % 90 + 3)]},
        }
        if n % 4
        else {}
        for n in range(len(sids))
    ]
    catalog = Catalog.from_arrays(
        sids, items=[f"i{n}" for n in range(len(sids))], codebooks=[9, 40, 30],
        attributes=[Attribute("country", values=["DE", "FR"]), Attribute("place", bloom=128)],
        rules=rules,
    )  # fmt: skip
    return Index.build(catalog, layout=layout, static=parts)


def compare(index, normalize, widths):
    """Searches by the kernels and by the torch backend, on the same logits."""
    engines = [
        Engine(index, backend, normalize) for backend in (TorchBackend("cpu"), TritonBackend())
    ]
    draw = np.random.default_rng(2)
    beams = [engine.begin(requests=REQUESTS) for engine in engines]
    for width, size in zip(widths, index.codebooks, strict=True):
        places = beams[0].scores.shape[1]
        logits = draw.standard_normal((3, places, size)).astype(np.float32)
        beams = [e.step(b, width, logits=logits) for e, b in zip(engines, beams, strict=True)]
        for name in ("tokens", "rows", "parents", "count"):
            expected, found = (getattr(one, name).tolist() for one in beams)
            assert found == expected, name
        np.testing.assert_allclose(beams[1].scores, beams[0].scores, atol=1e-5)
    return beams[0]


@pytest.mark.parametrize(
    ("layout", "normalize"),
    [("dense", "catalog"), ("dense", "eligible"), ("sparse", "all"), ("sparse", "eligible")],
)
def test_the_same_beams_as_the_torch_backend(layout, normalize):
    compare(an_index(layout, [2, 2, 2]), normalize, (4, 6, 5))


@pytest.mark.parametrize("normalize", ["catalog", "eligible", "all"])
def test_many_beams(normalize):
    # From 64 beams on, bitmaps are looked at by code that knows no guidance.
    beams = compare(an_index("dense", None), normalize, (9, 70, 100))
    assert max(beams.count) >= 64


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("pieces", ["small", "as they are"])
def test_a_row_of_several_pieces(layout, pieces, monkeypatch):
    # One row has far more tokens than a program looks at at once, the others have one each.
    if pieces == "small":
        few = {"WORD_BLOCK": 8, "ENTRIES": 32, "warps": 4}
        monkeypatch.setitem(TUNING, "permitted", {"few": few, "many": few})
        monkeypatch.setitem(TUNING, "permitted_units", {"UNITS": 2, "warps": 4})
    draw = np.random.default_rng(3)
    wide = np.sort(draw.permutation(1500)[:700])
    sids = [(0, int(token)) for token in wide] + [(first, 40 * first) for first in range(1, 12)]
    places = [[f"p{n % 80}"] for n in range(len(sids))]
    catalog = Catalog.from_arrays(
        sids, items=[f"i{n}" for n in range(len(sids))], codebooks=[12, 1500],
        attributes=[Attribute("country", values=["DE", "FR"]), Attribute("place", bloom=128)],
        rules=[{"place": {"accepts": accepted}} if n % 3 else {}
               for n, accepted in enumerate(places)],
    )  # fmt: skip
    compare(Index.build(catalog, layout=layout), "catalog", (12, 300))


def test_both_halves_know_the_requests():
    index = an_index(None, None)
    engine = Engine(index, TritonBackend())
    beams = engine.begin(requests=REQUESTS)
    logits = np.random.default_rng(3).standard_normal((3, 1, 9)).astype(np.float32)
    whole = engine.step(beams, 5, logits=logits)
    halves = engine.select(beams, engine.candidates(beams, logits=logits), 5)
    assert halves.rows.tolist() == whole.rows.tolist()
