"""Item numbers, semantic IDs of items, and sequences joined from rows."""

import logging

import numpy as np
import pytest

from beamsieve.catalog import Catalog
from beamsieve.errors import InputError
from beamsieve.index import Index
from beamsieve.models.batches import hold_out, training_batches, validation_batches
from beamsieve.models.data import Histories
from beamsieve.models.sequences import ItemSids, Sequences, join_rows, number, windows


def index_of(items, sids, **options) -> Index:
    return Index.build(Catalog.from_arrays(sids, items=items, **options))


def lists(sequences: Sequences) -> list[list[int]]:
    return [sequences[place].tolist() for place in range(len(sequences))]


STRINGS = index_of(["b", "a", "7"], [[1, 0], [0, 1], [0, 0]])
INTEGERS = index_of([5, 7, 9], [[1, 0], [0, 1], [0, 0]])


def test_ids_find_what_spells_the_same():
    ids = STRINGS.items.list(number(Histories.from_lists([[7]]), STRINGS).histories[0])
    assert ids == ["7"]
    found = number(Histories.from_lists([["7", "07", "x", "9"]]), INTEGERS)
    assert INTEGERS.items.list(found.histories[0]) == [7, 9]
    assert found.unknown == 2


def test_unknown_items_are_skipped_and_counted(caplog):
    histories = Histories.from_lists([["a", "x", "b"], ["y"], []], targets=["z", "a", None])
    with caplog.at_level(logging.WARNING, "beamsieve"):
        found = number(histories, STRINGS)
    assert found.unknown == 3
    assert [STRINGS.items.list(found.histories[row]) for row in range(3)] == [["a", "b"], [], []]
    assert found.targets.tolist()[0::2] == [-1, -1]
    assert STRINGS.items[int(found.targets[1])] == "a"
    assert "3 items are not in the index" in caplog.text
    assert "'x', data row 1" in caplog.text


def test_unknown_items_are_refused_by_name():
    with pytest.raises(InputError, match="row 2: the index has no item 'x'"):
        number(Histories.from_lists([["a"], ["x"]]), STRINGS, "refuse")
    with pytest.raises(InputError, match="row 1: the index has no item 'x'"):
        number(Histories.from_lists([["a"], ["y"]], targets=["x", "a"]), STRINGS, "refuse")


def test_histories_of_another_catalog_are_refused():
    with pytest.raises(InputError, match="nor any other item"):
        number(Histories.from_lists([["x", "y"]]), STRINGS)


def test_semantic_ids_are_spelled_as_the_tables_spell_them():
    index = index_of(["long", "short"], [[1, 2, 0], [1, 2, -1]], codebooks=3, end_token=True)
    sids = ItemSids(index)
    numbers = index.items.numbers(["short", "long"])
    assert sids.first(numbers).tolist() == [[1, 2, 3, -1], [1, 2, 0, 0]]
    assert sids.first(np.array([[-1]])).tolist() == [[[-1] * 4]]


def test_an_item_on_several_semantic_ids_is_drawn_from_all():
    index = index_of(["twice", "once", "twice"], [[2], [1], [0]])
    sids = ItemSids(index)
    numbers = np.repeat(index.items.numbers(["twice", "once"]), 50)
    drawn = sids.drawn(numbers, np.random.default_rng(0))[:, 0]
    assert set(drawn[:50].tolist()) == {0, 2}
    assert set(drawn[50:].tolist()) == {1}
    assert sids.first(numbers)[0].tolist() == [0]


def test_items_on_one_semantic_id_share_it():
    index = index_of(["x", "y"], [[3], [3]])
    assert ItemSids(index).first(np.arange(2)).tolist() == [[3], [3]]


def test_rows_of_a_user_are_joined_into_one_sequence():
    index = index_of(list(range(6)), [[n] for n in range(6)])
    histories = Histories.from_lists(
        [[0], [0, 1], [5], [1, 2], [4]],
        targets=[1, 2, 4, 3, 0],
        users=["u", "u", "v", "u", "u"],
    )
    joined = join_rows(number(histories, index), histories.users)
    # The fourth row's history is the end of what is known; the last one's is not.
    assert lists(joined) == [[0, 1, 2, 3], [5, 4], [4, 0]]


def test_without_users_every_row_is_its_own_sequence():
    index = index_of(list(range(4)), [[n] for n in range(4)])
    histories = Histories.from_lists([[0], [0, 1], []], targets=[1, None, None])
    assert lists(join_rows(number(histories, index), None)) == [[0, 1], [0, 1]]


def test_long_sequences_are_cut_into_windows_with_the_recent_one_full():
    cut = windows(Sequences.of([np.arange(7), np.arange(2)]), 3)
    assert lists(cut) == [[4, 5, 6], [1, 2, 3], [0], [0, 1]]


def test_held_out_items_are_never_trained_on():
    sequences = Sequences.of([np.array([n, 100 + n]) for n in range(20)])
    kept, held = hold_out(sequences, 0.25, seed=3, longest=10)
    assert len(held) == 5
    trained = set(kept.items.tolist())
    for history, target in held:
        assert int(target) not in trained
        assert int(history) in trained
    assert len(hold_out(sequences, 0.0, seed=3, longest=10)[1]) == 0


def test_training_reaches_the_place_that_a_full_history_is_served_from():
    index = index_of(list(range(9)), [[n] for n in range(9)])
    training, _ = hold_out(Sequences.of([np.arange(9)]), 0.0, seed=0, longest=3)
    assert lists(training) == [[5, 6, 7, 8], [1, 2, 3, 4], [0]]
    (batch,) = training_batches(
        training, ItemSids(index), size=3, drop=0.0, random=np.random.default_rng(0)
    )
    assert batch.histories.shape[1] == 3  # no more than the model reads
    full = batch.targets[batch.places == 3, 0]
    assert sorted(full.tolist()) == [4, 8]


def test_batches_predict_every_item_from_those_before_it():
    index = index_of(list(range(9)), [[n // 3, n % 3] for n in range(9)])
    sequences = Sequences.of([np.arange(n % 3, 9) for n in range(10)])
    sids = ItemSids(index)
    predicted = 0
    for batch in training_batches(
        sequences, sids, size=4, drop=0.0, random=np.random.default_rng(0)
    ):
        assert len(batch.histories) <= 4
        for target, row, place in zip(batch.targets, batch.rows, batch.places, strict=True):
            predicted += 1
            item = int(target[0] * 3 + target[1])
            if place:
                before = batch.histories[row, place - 1]
                assert int(before[0] * 3 + before[1]) == item - 1
            else:
                assert item in (0, 1, 2)
    assert predicted == len(sequences.items)


def test_dropping_leaves_items_out_but_never_all():
    index = index_of(list(range(9)), [[n] for n in range(9)])
    sequences = Sequences.of([np.arange(9)] * 50)
    batches = training_batches(
        sequences, ItemSids(index), size=50, drop=0.9, random=np.random.default_rng(0)
    )
    kept = [len(batch.targets) for batch in batches]
    assert 50 <= sum(kept) < 150


def test_validation_reads_the_whole_recent_history():
    index = index_of(list(range(9)), [[n] for n in range(9)])
    (batch,) = validation_batches([np.arange(6), np.arange(1)], ItemSids(index), size=8, longest=3)
    assert batch.histories[0, :, 0].tolist() == [2, 3, 4]
    assert batch.targets[:, 0].tolist() == [5, 0]
    assert batch.places.tolist() == [3, 0]
