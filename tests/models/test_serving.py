"""From a checkpoint to recommendations: the engine's beam search on the model's light decoder."""

import json
import logging
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch

from beamsieve.catalog import Catalog
from beamsieve.engine import Engine
from beamsieve.errors import BackendError, CheckpointError, InputError
from beamsieve.index import Index
from beamsieve.models import (
    Checkpoint,
    Generator,
    Histories,
    Model,
    ModelConfig,
    Recommender,
    TrainingSettings,
    load_checkpoint,
    make_model,
    recommend,
    save_checkpoint,
    train,
)
from beamsieve.models.data import Item
from beamsieve.models.sequences import ItemSids

from .family import KINDS, NAMES, one_batch

ITEMS = 40
CONFIG = ModelConfig(width=16, layers=1, heads=2, decoder_width=16, longest=4)
BACKENDS = ("torch:cpu", "reference")


def an_index(seed: int = 0, **options) -> Index:
    cells = np.random.default_rng(seed).choice(4 * 4 * 4, ITEMS - 2, replace=False)
    sids = np.stack([cells // 16, cells // 4 % 4, cells % 4], 1)
    sids = np.concatenate([sids, sids[:2]])  # two pairs of items share a semantic ID
    items = [f"item-{n}" for n in range(ITEMS)]
    options = {"titles": [f"Title {n}" for n in range(ITEMS)], **options}
    return Index.build(Catalog.from_arrays(sids, items=items, codebooks=4, **options))


def a_model(index: Index, seed: int = 0, **changes: Any) -> Checkpoint:
    """Random weights with sharp heads: what it says depends on history and prefix."""
    torch.manual_seed(seed)
    model = make_model(replace(CONFIG, **changes), index.codebooks).eval().requires_grad_(False)
    assert isinstance(model, Generator)
    for head in model.heads:
        head.weight.mul_(30)
    return Checkpoint(model, index.fingerprint)


INDEX = an_index()
MODEL = a_model(INDEX)
HISTORIES = Histories.from_lists(
    [["item-1", "item-2"], [], ["item-3"] * 9, ["item-4"]],
    targets=["item-5", None, "item-6", "gone"],
    users=["u", "v", "w", "x"],
)


def everything(index: Index, model: Model, history: list[Item]) -> list[tuple[float, str]]:
    """All items with their scores by brute force, normalised over each prefix's children."""
    sids = ItemSids(index)
    numbers = index.items.numbers(history[-model.config.longest :])
    leaves = index.leaf_count
    read = torch.from_numpy(sids.first(numbers[None])).expand(leaves, -1, -1)
    batch = one_batch(read, torch.from_numpy(sids.sids), torch.full((leaves,), len(numbers)))
    said = model.logits(batch)
    found = []
    for leaf in range(leaves):
        sid = sids.sids[leaf]
        score = 0.0
        for level in range(index.length):
            children = torch.from_numpy(index.children(sid[:level].tolist()).astype(np.int64))
            place = int((children == sid[level]).nonzero())
            score += float(torch.log_softmax(said[level][leaf, children], -1)[place])
        found += [(score, str(item)) for item in index.items_of(index.sid_of_leaf(leaf).tolist())]
    return sorted(found, key=lambda entry: -entry[0])


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_wide_enough_it_finds_the_best_of_all_items(backend, kind):
    model = a_model(INDEX, architecture=kind[0], pointer=kind[1])
    rows = list(recommend(model, INDEX, HISTORIES, k=ITEMS, width=64, backend=backend))
    for row, recommendation in enumerate(rows):
        wanted = everything(INDEX, model.model, HISTORIES.history(row))
        assert len(recommendation.items) == ITEMS
        np.testing.assert_allclose(
            [hit.score for hit in recommendation.items],
            [score for score, _ in wanted],
            atol=1e-4,
        )
        scores = {item: score for score, item in wanted}
        for hit in recommendation.items:
            assert hit.score == pytest.approx(scores[str(hit.item)], abs=1e-4)
            assert INDEX.items_of(hit.sid).count(hit.item) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_do_not_depend_on_their_batch(backend):
    one, all_at_once = (
        list(recommend(MODEL, INDEX, HISTORIES, k=5, width=8, backend=backend, batch=batch))
        for batch in (1, 64)
    )
    for alone, together in zip(one, all_at_once, strict=True):
        assert [hit.item for hit in alone.items] == [hit.item for hit in together.items]
        np.testing.assert_allclose(
            [hit.score for hit in alone.items], [hit.score for hit in together.items], atol=1e-5
        )


def test_rows_carry_user_target_and_titles():
    rows = list(recommend(MODEL, INDEX, HISTORIES, k=3, backend="torch:cpu"))
    assert [(row.row, row.user, row.target) for row in rows] == [
        (0, "u", "item-5"),
        (1, "v", None),
        (2, "w", "item-6"),
        (3, "x", "gone"),
    ]
    for row in rows:
        assert [hit.title for hit in row.items] == [
            str(hit.item).replace("item-", "Title ") for hit in row.items
        ]
    line = json.loads(json.dumps(rows[0].as_dict()))
    assert line["items"][0].keys() == {"item", "title", "score", "sid"}
    assert (line["user"], line["target"], line["reason"]) == ("u", "item-5", "")


def test_titles_may_be_given_and_may_be_absent():
    (row,) = recommend(
        MODEL,
        INDEX,
        Histories.from_lists([["item-1"]]),
        k=ITEMS,
        backend="torch:cpu",
        titles={"item-0": "Zero"},
    )
    assert {hit.title for hit in row.items} == {"Zero", None}
    bare = an_index(titles=None)
    (row,) = recommend(
        a_model(bare), bare, Histories.from_lists([["item-1"]]), k=2, backend="torch:cpu"
    )
    assert [hit.title for hit in row.items] == [None, None]


def test_of_a_long_history_the_most_recent_items_count_and_it_is_said_once(caplog):
    recent = ["item-9", "item-8", "item-7", "item-6"]
    histories = Histories.from_lists([["item-1", "item-2", *recent], recent, ["item-3"] * 5])
    with caplog.at_level(logging.WARNING, "beamsieve"):
        long, short, _ = recommend(MODEL, INDEX, histories, backend="torch:cpu")
    assert long.items == short.items
    said = [record.message for record in caplog.records if "longer than" in record.message]
    assert said == [
        "histories: 2 histories are longer than the model reads; their most recent 4 items count."
    ]


def test_an_unknown_item_is_skipped_or_refused():
    histories = Histories.from_lists([["item-1", "new"], ["item-1"]])
    with_it, without = recommend(MODEL, INDEX, histories, backend="torch:cpu")
    assert with_it.items == without.items
    with pytest.raises(InputError, match="row 1: the index has no item 'new'"):
        recommend(MODEL, INDEX, histories, unknown="refuse")


def test_more_than_exists_gives_what_exists():
    (row,) = recommend(
        MODEL, INDEX, Histories.from_lists([[]]), k=1000, width=500, backend="torch:cpu"
    )
    assert sorted(str(hit.item) for hit in row.items) == sorted(f"item-{n}" for n in range(ITEMS))


@pytest.mark.parametrize("name", ["k", "width", "batch"])
def test_numbers_below_one_are_refused(name):
    with pytest.raises(InputError, match=f"{name} is 0"):
        recommend(MODEL, INDEX, HISTORIES, **cast("Any", {name: 0}))


def test_a_backend_that_is_not_there_is_refused():
    with pytest.raises(BackendError):
        recommend(MODEL, INDEX, HISTORIES, backend="nothing")


def test_a_checkpoint_of_another_catalog_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    save_checkpoint(MODEL, path)
    other = an_index(seed=1)
    for checkpoint in (path, MODEL):
        with pytest.raises(CheckpointError, match="was trained on the catalog"):
            recommend(checkpoint, other, HISTORIES)
    (row,) = recommend(
        path,
        other,
        Histories.from_lists([["item-1"]]),
        k=3,
        other_catalog=True,
        backend="torch:cpu",
    )
    assert len(row.items) == 3


def test_free_beams_are_counted():
    for row in recommend(MODEL, INDEX, HISTORIES, width=16, backend="torch:cpu", free_beams=True):
        assert row.free_beams == 16
        assert 0 < row.illegal_free_beams < 16  # 38 of 64 sequences are semantic IDs
    whole = Index.build(Catalog.from_arrays([[n // 4, n % 4] for n in range(16)]))
    (row,) = recommend(
        a_model(whole),
        whole,
        Histories.from_lists([[3]]),
        width=16,
        backend="torch:cpu",
        free_beams=True,
    )
    assert (row.free_beams, row.illegal_free_beams) == (16, 0)


@pytest.mark.parametrize("end_token", [False, True])
def test_semantic_ids_of_several_lengths(end_token, tmp_path):
    sids = [[0, -1, -1], [1, 0, -1], [1, 1, 0], [1, 1, 1], [2, 0, 0]]
    if end_token:
        sids += [[1, -1, -1], [1, 1, -1]]
    index = Index.build(Catalog.from_arrays(sids, codebooks=3, end_token=end_token))
    items = list(range(len(sids)))
    histories = Histories.from_lists([items[n:] + items[:n] for n in items] * 10)
    settings = TrainingSettings(
        epochs=40, patience=40, batch=16, learning_rate=1e-2, drop_history=0.0, seed=2, threads=1
    )
    config = replace(CONFIG, longest=8, dropout=0.0)
    train(histories, index, tmp_path / "m", config=config, settings=settings)
    asked = Histories.from_lists([[n] for n in items])
    for row in recommend(tmp_path / "m", index, asked, k=99, width=20, backend="torch:cpu"):
        assert sorted(int(hit.item) for hit in row.items) == items
        assert row.items[0].item == (row.row + 1) % len(items)
        assert sum(np.exp(hit.score) for hit in row.items) == pytest.approx(1, abs=1e-4)


def test_a_recommender_serves_several_calls():
    recommender = Recommender(MODEL, Engine(INDEX, "torch:cpu"))
    histories = [INDEX.items.numbers(["item-1", "item-2"]), INDEX.items.numbers([])]
    first = recommender.decode(recommender.read(histories), k=4, width=10)
    again = recommender.decode(recommender.read(histories), k=4, width=10)
    assert [hits.items for hits in first] == [hits.items for hits in again]
    (alone,) = recommender.decode(recommender.read(histories[:1]), k=4, width=10)
    assert alone.items == first[0].items


def test_a_loaded_checkpoint_recommends_what_the_saved_one_did(tmp_path):
    path = tmp_path / "model.safetensors"
    save_checkpoint(MODEL, path)
    before = list(recommend(MODEL, INDEX, HISTORIES, backend="torch:cpu"))
    assert list(recommend(load_checkpoint(path), INDEX, HISTORIES, backend="torch:cpu")) == before
    assert list(recommend(path, INDEX, HISTORIES, backend="torch:cpu")) == before
