"""Cases that published decoders get wrong, each with the answer that the contract fixes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beamsieve_spec import Beams, Trie, begin, results, search, step

from .models import from_table, random_table

INF = math.inf
SID = tuple[int, ...]


def flat(trie: Trie) -> dict[SID, list[float]]:
    """A model without any opinion."""
    return {
        prefix: [0.0] * size
        for prefixes, size in zip(trie.prefixes, trie.codebooks, strict=False)
        for prefix in prefixes
    }


def real(beams: Beams, b: int = 0) -> list[SID]:
    """The tokens of request b's beams."""
    return [tuple(tokens) for tokens in beams.tokens[b, : beams.count[b]].tolist()]


def test_fewer_items_than_places() -> None:
    trie = Trie([(1, 2, 3), (1, 2, 4), (5, 6, 7)], codebooks=[10] * 3)
    beams = search(trie, from_table(trie, flat(trie)), [4, 4, 4])
    assert beams.count.tolist() == [3]
    assert sorted(real(beams)) == [(1, 2, 3), (1, 2, 4), (5, 6, 7)]
    assert beams.tokens[0, 3].tolist() == [-1, -1, -1]
    assert beams.scores[0, 3] == -INF


def test_a_request_with_one_item_left_does_not_touch_its_neighbour() -> None:
    trie = Trie([(a, b) for a in range(4) for b in range(4)])
    table = random_table(trie, seed=4)

    def permits(b: int, prefix: SID) -> bool:
        return prefix == (3, 1)[: len(prefix)] if b == 0 else prefix != (3, 1)

    both = search(trie, from_table(trie, table, table), [3, 3], batch=2, permits=permits)
    alone = search(trie, from_table(trie, table), [3, 3], permits=lambda _, p: permits(1, p))
    assert real(both, 0) == [(3, 1)]
    assert both.count.tolist() == [1, 3]
    for name in ("tokens", "scores", "keys", "rows", "parents"):
        np.testing.assert_array_equal(getattr(both, name)[1], getattr(alone, name)[0])


def test_a_sid_that_is_a_prefix_of_another() -> None:
    trie = Trie([(1, 2), (1, 2, 3), (4, 5, 6)], items="ABC", end_token=True)
    hits = results(trie, search(trie, from_table(trie, flat(trie)), [9] * 4))[0]
    assert {(hit.item, hit.sid) for hit in hits} == {
        ("A", (1, 2)),
        ("B", (1, 2, 3)),
        ("C", (4, 5, 6)),
    }
    # After (1, 2), ending and going on are two tokens like any others: half each.
    scores = {hit.item: hit.score for hit in hits}
    assert scores["A"] == scores["B"] == pytest.approx(math.log(0.25))
    assert scores["C"] == pytest.approx(math.log(0.5))


def test_the_whole_prefix_counts_not_the_last_token() -> None:
    trie = Trie([(1, 2, 3), (8, 2, 9)])
    assert trie.children((1, 2)) == [3]
    assert trie.children((8, 2)) == [9]
    beams = search(trie, from_table(trie, flat(trie)), [9] * 3)
    assert sorted(real(beams)) == [(1, 2, 3), (8, 2, 9)]


def test_the_ranking_depends_on_the_normalizer() -> None:
    trie = Trie([(0, 0), (1, 0), (1, 1)], codebooks=[4, 4])
    table = {(): [0, -0.2, -9, -9], (0,): [1, 0, 3, -9], (1,): [0, 1, -9, -9]}
    for normalize, ranking in (
        ("catalog", [((0, 0), -0.598), ((1, 1), -1.111)]),
        ("all", [((1, 1), -1.112), ((0, 0), -2.768)]),
    ):
        beams = search(trie, from_table(trie, table), [3, 3], normalize=normalize)  # type: ignore[arg-type]
        scores = dict(zip(real(beams), beams.scores[0].tolist(), strict=True))
        order = [sid for sid in real(beams) if sid in dict(ranking)]
        assert order == [sid for sid, _ in ranking]
        for sid, score in ranking:
            assert scores[sid] == pytest.approx(score, abs=5e-4)


def test_a_beam_dies_when_the_model_refuses_all_its_children() -> None:
    trie = Trie([(0, 0), (1, 1)], codebooks=[2, 3])
    table = {(): [5.0, 0.0], (0,): [-INF, 9.0, 9.0], (1,): [0.0, 0.0, 0.0]}
    beams = search(trie, from_table(trie, table), [2, 2])
    assert real(beams) == [(1, 1)]


def test_a_prefix_whose_leaves_are_all_excluded_takes_no_beam() -> None:
    trie = Trie([(1, 2, 3), (1, 2, 4), (1, 5, 6)])
    excluded = {trie.leaf[1, 2, 3], trie.leaf[1, 2, 4]}

    def permits(b: int, prefix: SID) -> bool:
        return not set(range(*trie.leaf_interval[prefix])) <= excluded

    table = random_table(trie, seed=0) | {(1,): [0.0] * 2 + [99.0, 0.0, 0.0, 0.0]}
    beams = step(trie, begin(trie, 1), 1, [[table[()]]], permits=permits)
    beams = step(trie, beams, 1, [[table[1,]]], permits=permits)
    assert real(beams) == [(1, 5)]
    assert real(search(trie, from_table(trie, table), [1, 1, 1], permits=permits)) == [(1, 5, 6)]


def test_of_a_collision_only_the_eligible_item_is_returned() -> None:
    trie = Trie([(1, 2, 3)] * 3, items="ABC")
    beams = search(trie, from_table(trie, flat(trie)), [2] * 3)
    hits = results(trie, beams, k=2, eligible=lambda b, item: item == "B")[0]
    assert [(hit.item, hit.score) for hit in hits] == [("B", 0.0)]
    assert [hit.item for hit in results(trie, beams, k=2)[0]] == ["A", "B"]


def test_an_item_on_two_sids_counts_once_at_its_best_score() -> None:
    trie = Trie([(0,), (1,), (2,)], items=["x", "y", "x"])
    beams = step(trie, begin(trie, 1), 3, [[[0.0, 1.0, 2.0]]])
    assert [(hit.item, hit.sid) for hit in results(trie, beams)[0]] == [("x", (2,)), ("y", (1,))]


def test_results_rank_by_score_also_after_a_nudge() -> None:
    trie = Trie([(0,), (1,), (2,)], items="abc")
    beams = step(trie, begin(trie, 1), 2, [[[0.0, 1.0, 2.0]]], nudge=[[[9.0, 0.0, 0.0]]])
    assert real(beams) == [(0,), (2,)]
    assert [hit.item for hit in results(trie, beams)[0]] == ["c", "a"]


def test_k_above_what_exists_returns_what_exists() -> None:
    trie = Trie([(0,), (1,)])
    assert len(results(trie, step(trie, begin(trie, 1), 9, [[[0.0, 0.0]]]), k=100)[0]) == 2


def test_the_first_step_expands_one_beam() -> None:
    trie = Trie([(v, 0) for v in range(5)])
    beams = step(trie, begin(trie, 1), 4, [[[0.0, 1.0, 2.0, 3.0, 4.0]]])
    assert real(beams) == [(4,), (3,), (2,), (1,)]


def test_tokens_of_another_level_are_no_candidates() -> None:
    """One shared vocabulary, level 2's ids scoring highest at level 1."""
    trie = Trie([(0, 10), (1, 11), (2, 12)], codebooks=[13, 13])
    root = [0.0] * 10 + [99.0] * 3
    beams = step(trie, begin(trie, 1), 3, [[root]])
    assert sorted(real(beams)) == [(0,), (1,), (2,)]


@pytest.mark.parametrize("vocabulary", [1, 2, 31, 33, 64, 65])
@pytest.mark.parametrize("width", [1, 3, 100])
def test_edge_shapes(vocabulary: int, width: int) -> None:
    """One level, the first and last token, codebooks that fill no whole word, wide and narrow."""
    trie = Trie([(0,), (vocabulary - 1,)], codebooks=[vocabulary])
    beams = step(trie, begin(trie, 1), width, np.zeros((1, 1, vocabulary)))
    assert beams.tokens.shape == (1, width, 1)
    assert real(beams) == trie.leaves[:width]


def test_prefixes_start_below_the_root() -> None:
    trie = Trie([(1, 2, 3), (1, 2, 4), (5, 6, 7)])
    beams = search(
        trie,
        from_table(trie, flat(trie), flat(trie), flat(trie)),
        [2],
        batch=3,
        prefixes=[(1, 2), (5, 9), (5, 6)],
    )
    assert [real(beams, b) for b in range(3)] == [[(1, 2, 3), (1, 2, 4)], [], [(5, 6, 7)]]
    assert results(trie, beams)[1] == []


def test_a_prefix_that_is_a_whole_sid_is_finished() -> None:
    trie = Trie([(0, 1), (1, 1)], items=["a", "b"])
    beams = begin(trie, 1, prefixes=[(1, 1)])
    assert (beams.finished.tolist(), beams.rows.tolist()) == ([[True]], [[1]])
    assert [hit.item for hit in results(trie, beams)[0]] == ["b"]
