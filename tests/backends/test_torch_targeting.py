"""Targeting on the torch backend: against the specification, and the same bits in any company."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import beamsieve as bs
import beamsieve_spec as spec
from beamsieve.interface import Normalize
from beamsieve_backends.torch_dense import targeting as tests_on_device
from beamsieve_spec.targeting_matchers import Targeting
from beamsieve_spec.targeting_rules import Attribute as SpecAttribute
from beamsieve_spec.targeting_rules import rules_by_item

DECLARED: list[dict[str, Any]] = [
    {"name": "country", "values": [f"C{n}" for n in range(70)]},
    {"name": "place", "bloom": 128},
    {"name": "topic", "bloom": 64},
]
CODEBOOKS = [9, 30, 20]
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
FIELDS = ("tokens", "scores", "keys", "rows", "parents", "finished", "count")


def random_rules(draw: np.random.Generator, count: int) -> list[dict[str, Any]]:
    def some(values: Any, most: int) -> list[Any]:
        return list(draw.choice(values, draw.integers(1, most), replace=False).tolist())

    rules = []
    for _ in range(count):
        rule: dict[str, Any] = {}
        if draw.random() < 0.5:
            rule["country"] = {draw.choice(["accepts", "refuses"]): some(DECLARED[0]["values"], 40)}
        if draw.random() < 0.5:
            rule["place"] = {draw.choice(["accepts", "refuses"]): some(range(100), 9)}
        if draw.random() < 0.3:
            rule["topic"] = {"accepts": some(list("abcdefgh"), 4)}
        rules.append(rule)
    return rules


def random_request(draw: np.random.Generator, items: int) -> dict[str, Any] | None:
    if draw.random() < 0.15:
        return None
    request: dict[str, Any] = {}
    if draw.random() < 0.7:
        request["country"] = [f"C{n}" for n in draw.integers(0, 72, draw.integers(1, 3))]
    if draw.random() < 0.6:
        request["place"] = draw.integers(0, 120, draw.integers(1, 70)).tolist()
    if draw.random() < 0.5:
        request["topic"] = draw.choice(list("abcdexyz"), 2).tolist()
    if draw.random() < 0.3:
        request["exclude"] = draw.integers(0, items, draw.integers(0, items)).tolist()
    if draw.random() < 0.3:
        request["allow"] = draw.integers(0, items, draw.integers(0, items // 2)).tolist()
    return request


class World:
    """A random catalog with rules, for the library and for the specification."""

    def __init__(self, seed: int, partition: dict[str, Any], end_token: bool = False) -> None:
        draw = np.random.default_rng(seed)
        count = 400
        sids = np.stack([(draw.random(count) ** 2 * v).astype(int) for v in CODEBOOKS], 1)
        if end_token:
            sids[draw.random(count) < 0.2, 2] = -1
        rules = random_rules(draw, count)
        catalog = bs.Catalog.from_arrays(
            sids,
            codebooks=CODEBOOKS,
            end_token=end_token,
            attributes=[bs.Attribute(**one) for one in DECLARED],
            rules=rules,
        )
        self.index = bs.Index.build(catalog, **partition)
        self.trie = spec.Trie(sids.tolist(), codebooks=CODEBOOKS, end_token=end_token)
        declared = [SpecAttribute(**one) for one in DECLARED]
        self.targeting = Targeting(
            self.trie,
            declared,
            rules_by_item(declared, range(count), rules),
            **partition,
        )
        self.requests = [random_request(draw, count) for _ in range(12)]


PARTITIONS: list[dict[str, Any]] = [{}, {"static": [4, 3, 1]}, {"dynamic": (0.3, 5)}]


@pytest.mark.parametrize("normalize", ["catalog", "eligible", "all"])
@pytest.mark.parametrize("partition", PARTITIONS, ids=["whole", "static", "dynamic"])
def test_a_mixed_batch_is_the_specifications(normalize: Normalize, partition: dict[str, Any]):
    world = World(1, partition)
    engine = bs.Engine(world.index, backend="torch:cpu", normalize=normalize)
    batch = len(world.requests)
    permits = world.targeting.permits(world.requests)
    beams = engine.begin(batch, requests=world.requests)
    expected = spec.begin(world.trie, batch)
    draw = np.random.default_rng(7)
    for width in (8, 40, 60):
        logits = draw.normal(size=(batch, beams.width, CODEBOOKS[beams.step])).astype(np.float32)
        beams = engine.step(beams, width, logits=logits)
        expected = spec.step(world.trie, expected, width, logits, normalize, permits=permits)
        for name in ("tokens", "rows", "parents", "count", "finished"):
            np.testing.assert_array_equal(getattr(beams, name), getattr(expected, name))
        np.testing.assert_allclose(beams.scores, expected.scores, atol=1e-5)
    exact = spec.results(world.trie, expected, 50, world.targeting.eligible(world.requests))
    for mine, theirs in zip(engine.results(beams, k=50), exact, strict=True):
        assert mine.items == [hit.item for hit in theirs]


@pytest.mark.parametrize("partition", PARTITIONS, ids=["whole", "static", "dynamic"])
@pytest.mark.parametrize("end_token", [False, True])
def test_with_room_for_all_exactly_the_eligible_items_are_found(partition, end_token):
    if end_token and "static" in partition:
        partition = {"static": [4, 3, 1, 1]}
    world = World(2, partition, end_token)
    engine = bs.Engine(world.index, backend="torch:cpu")

    def score(step, beams):
        return torch.zeros(12, beams.width, world.trie.codebooks[step - 1])

    widths = [500] * world.trie.length
    beams = engine.search(score, widths, batch=12, requests=world.requests)
    eligible = world.targeting.eligible(world.requests)
    for b, hits in enumerate(engine.results(beams, k=1000)):
        assert sorted(hits.items) == [item for item in range(400) if eligible(b, item)]


@pytest.mark.parametrize("normalize", ["catalog", "eligible"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_targeted_request_has_the_same_bits_in_any_company(normalize: Normalize, device: str):
    world = World(3, {"dynamic": (0.3, 4)})
    engine = bs.Engine(world.index, backend=f"torch:{device}", normalize=normalize)
    draw = np.random.default_rng(0)
    head = [torch.from_numpy(draw.normal(size=(v, 12))).to(device).float() for v in CODEBOOKS]

    def decode(chosen: list[int]) -> list[dict[str, torch.Tensor]]:
        beams = engine.begin(len(chosen), requests=[world.requests[r] for r in chosen])
        seen = []
        for step, width in enumerate((8, 33, 20)):
            states = [np.random.default_rng([r, step]).normal(size=(40, 12)) for r in chosen]
            hidden = torch.from_numpy(np.stack([state[: beams.width] for state in states]))
            beams = engine.step(beams, width, hidden=hidden.to(device).float(), head=head[step])
            seen.append({name: getattr(beams, name) for name in FIELDS})
        return seen

    together = decode(list(range(12)))
    for r in range(12):
        for one, many in zip(decode([r]), together, strict=True):
            for name in FIELDS:
                assert torch.equal(one[name][0], many[name][r]), (r, name)


def test_pairs_tested_once_or_one_by_one_are_the_same(monkeypatch):
    world = World(4, {"static": [2, 2, 2]})
    engine = bs.Engine(world.index, backend="torch:cpu")

    def run():
        return engine.search(
            lambda step, beams: torch.zeros(12, beams.width, CODEBOOKS[step - 1]),
            [20, 50, 50],
            batch=12,
            requests=world.requests,
        )

    plain = run()
    tabled = []
    contains = tests_on_device._contains

    def spy(rows, signed, count, words, row, request):
        tabled.append(len(row) == len(rows) * len(signed))
        return contains(rows, signed, count, words, row, request)

    monkeypatch.setattr(tests_on_device, "_contains", spy)
    monkeypatch.setattr(tests_on_device, "_CHUNK_CELLS", 64)
    again = run()
    assert {True, False} <= set(tabled)  # both ways were taken
    assert torch.equal(plain.tokens, again.tokens)


@pytest.mark.parametrize("number", [9, 63, 64, 65, 130])
def test_many_signatures_turned_round_give_what_one_by_one_gives(number, monkeypatch):
    draw = torch.Generator().manual_seed(number)

    def words(*shape):
        return torch.randint(-(2**63), 2**63 - 1, shape, generator=draw)

    rows = words(50, 2) | words(50, 2)  # three bits in four are set
    signed = words(3, number, 2) & words(3, number, 2) & words(3, number, 2)  # one in eight
    count = torch.tensor([number, 0, 1])
    row, request = torch.arange(50).repeat(3), torch.arange(3).repeat_interleave(50)
    arguments = rows, signed, count, (0, 1), row, request
    turned = tests_on_device._contains(*arguments)
    monkeypatch.setattr(tests_on_device, "_FEW_SIGNATURES", number)
    one_by_one = tests_on_device._contains(*arguments)
    assert torch.equal(turned, one_by_one)
    assert 0 < int(turned[:50].sum()) < 50
    assert turned[50:100].all()


def test_matchers_count_among_the_bytes():
    world = World(5, {})
    bare = bs.Index.build(
        bs.Catalog.from_arrays(world.index.sid_of_leaf(np.arange(world.index.leaf_count)))
    )
    backend = bs.Engine(bare, backend="torch:cpu")._backend
    with_matchers = backend.device_bytes(backend.load(world.index))
    assert world.index.matchers is not None
    assert with_matchers >= backend.device_bytes(backend.load(bare)) + world.index.matchers.nbytes
