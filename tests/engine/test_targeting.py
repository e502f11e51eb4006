"""Requests in, eligible items out: what the engine adds to a backend's targeting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import beamsieve as bs
from beamsieve.interface import Capabilities
from beamsieve_backends.torch_dense import TorchBackend

COUNTRY = bs.Attribute("country", values=["US", "CA", "UK"])
PLACE = bs.Attribute("place", bloom=64)
SIDS = [(0, 0), (0, 1), (0, 1), (1, 0), (1, 1)]
ITEMS = ["us", "ca", "anyone", "here", "both"]
RULES = [
    {"country": {"accepts": ["US"]}},
    {"country": {"accepts": ["CA"]}},
    {},
    {"place": {"accepts": ["here"]}},
    {"country": {"accepts": ["US", "CA"]}, "place": {"refuses": ["there"]}},
]


@pytest.fixture(params=["torch:cpu", "reference"])
def engine(request) -> bs.Engine:
    catalog = bs.Catalog.from_arrays(
        np.array(SIDS), items=ITEMS, attributes=[COUNTRY, PLACE], rules=RULES
    )
    return bs.Engine(bs.Index.build(catalog), backend=request.param)


def found(engine, requests, width=9, prefix=None):
    def score(step, beams):
        return np.zeros((len(requests), beams.width, 2), np.float32)

    levels = 2 if prefix is None else 2 - len(prefix[0])
    beams = engine.search(score, [width] * levels, len(requests), requests, prefix)
    return engine.results(beams)


def test_every_mixture_in_one_batch(engine):
    requests = [
        None,
        {},
        {"country": "US"},
        {"country": "CA", "place": ["there", "here"]},
        {"country": ["US", "CA"], "place": "elsewhere"},
        {"allow": ["anyone", "here"]},
        {"country": "US", "exclude": ["us", "unknown item"]},
        {"country": "UK", "allow": ["us"]},
    ]
    hits = found(engine, requests)
    assert [sorted(one.items) for one in hits] == [
        sorted(ITEMS),
        ["anyone"],
        ["anyone", "us"],
        ["anyone", "both", "ca", "here"],
        ["anyone", "both"],
        ["anyone"],
        ["anyone"],
        [],
    ]
    for request, one in zip(requests, hits, strict=True):
        assert [hit.item for hit in found(engine, [request])[0]] == one.items


def test_what_the_exact_rules_removed_is_counted(engine):
    (hits,) = found(engine, [{"country": "US"}])  # (0, 1) stands for "ca", and for "anyone"
    assert hits.items == ["us", "anyone"]
    assert (hits.generated_sids, hits.generated_items, hits.removed_items) == (2, 3, 1)
    assert hits.pass_rate == pytest.approx(2 / 3)


def test_k_counts_eligible_items_alone(engine):
    beams = engine.search(
        lambda step, beams: np.zeros((1, beams.width, 2), np.float32),
        [9, 9],
        batch=1,
        requests=[{"country": "US"}],
    )
    assert engine.results(beams, k=2)[0].items == ["us", "anyone"]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"allow": []}, "allow, less exclude, names no item"),
        ({"allow": ["nobody"]}, "allow, less exclude, names no item"),
        ({"allow": ["us"], "exclude": ["us"]}, "allow, less exclude, names no item"),
        ({"exclude": ITEMS}, "no beam is left"),
        ({"country": "UK", "exclude": ["anyone"]}, "exact rules removed all 2 items of the 1"),
        ({"country": "CA", "allow": ["us"]}, "no item that the request may see"),
    ],
)
def test_an_empty_result_has_its_reason(engine, request_, reason):
    (hits,) = found(engine, [request_])
    assert hits.items == []
    assert reason in hits.reason


def test_an_excluded_subtree_takes_no_beam(engine):
    (hits,) = found(engine, [{"country": "US", "exclude": ["us", "ca", "anyone"]}], width=1)
    assert hits.items == []
    (hits,) = found(engine, [{"place": "here", "exclude": ["us", "ca", "anyone"]}], width=1)
    assert hits.items == ["here"]


def test_targeting_holds_below_a_given_prefix(engine):
    hits = found(engine, [{"country": "CA"}, None], prefix=[[0], [0]])
    assert [sorted(one.items) for one in hits] == [["anyone", "ca"], ["anyone", "ca", "us"]]


def test_a_request_changed_later_changes_nothing(engine):
    allowed = ["anyone"]
    request = {"allow": allowed, "country": "US"}
    beams = engine.begin(1, requests=[request])
    allowed.append("us")
    request["country"] = "CA"
    for _ in range(2):
        beams = engine.step(beams, 9, logits=np.zeros((1, beams.width, 2), np.float32))
    assert engine.results(beams)[0].items == ["anyone"]


def test_requests_say_how_large_the_batch_is(engine):
    assert engine.begin(requests=[{"country": "US"}, None]).search.batch == 2


def test_requests_without_any_targeting_are_no_targeting(engine):
    beams = engine.begin(2, requests=[None, None])
    assert beams.search.requests is None
    assert beams.search.asked is None


@pytest.mark.parametrize(
    ("requests", "says"),
    [
        ([None], "1 requests for a batch of 2"),
        ([None, {"planet": "Mars"}], "Request 1 names 'planet'"),
        ([None, {"country": 3.5}], "Request 1 gives 3.5"),
        ([{"allow": "us"}, None], "Request 0 gives 'us' as allow"),
        ({"country": "US"}, "give a list"),
    ],
)
def test_a_request_that_cannot_be_read_is_named(engine, requests, says):
    with pytest.raises(bs.RequestError, match=says):
        engine.begin(2, requests=requests)


class Modest(TorchBackend):
    """A backend that can decide less."""

    name = "modest"
    can: tuple[str, ...] = ()

    @property
    def capabilities(self):
        return replace(Capabilities(), targeting=self.can)


@pytest.mark.parametrize(
    ("can", "request_", "says"),
    [
        ((), {"country": "US"}, "cannot decide bits or bloom.*offers no targeting"),
        (("bits",), {"country": "US"}, "cannot decide bloom.*offers bits"),
        (("bits", "bloom"), {"allow": ["us"]}, "cannot decide allow"),
        (("bits", "bloom", "allow"), {"exclude": ["us"]}, "cannot decide exclude"),
    ],
)
def test_what_the_backend_cannot_decide_is_refused_at_once(engine, can, request_, says):
    backend = Modest("cpu")
    backend.can = can
    limited = bs.Engine(engine.index, backend=backend)
    with pytest.raises(bs.BackendError, match=says):
        limited.begin(1, requests=[request_])
    assert limited.begin(1, requests=[None]).search.requests is None


def test_an_index_without_attributes_still_has_exact_sets():
    catalog = bs.Catalog.from_arrays(np.array(SIDS), items=ITEMS)
    for config in ("torch:cpu", "reference"):
        engine = bs.Engine(bs.Index.build(catalog), backend=config)
        hits = found(engine, [{"allow": ["here", "ca"]}, {"exclude": ["here"]}, {}, None])
        assert [sorted(one.items) for one in hits] == [
            ["ca", "here"],
            ["anyone", "both", "ca", "us"],
            sorted(ITEMS),
            sorted(ITEMS),
        ]
