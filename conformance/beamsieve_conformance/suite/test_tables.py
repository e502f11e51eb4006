"""Tables of every size and layout: ragged tails, hub rows, chains, token dtypes, one item."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from beamsieve.index import Index
from beamsieve_conformance import model
from beamsieve_conformance.catalogs import EDGES
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Layout, Trial, World

LAYOUTS = ("dense", "sparse")
DTYPE_EDGES = (256, 257, 32768, 32769, 65536, 65537)
"""Codebook sizes whose last token is the last of a dtype, or the first beyond it."""


def search_all(trial: Trial, width: int, batch: int = 2, seed: int = 0) -> None:
    """Every step to the end with smooth random logits, each judged."""
    rng = np.random.default_rng(seed)
    beams = trial.begin(batch)
    for _ in range(trial.trie.length):
        beams = trial.step(beams, width, model.given_logits(rng, trial.shape(beams)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [*EDGES[:9], 1, 2])
def test_first_and_last_token_of_a_codebook_are_valid(
    subject: Subject, size: int, layout: Layout
) -> None:
    sids = [(a, b) for a in sorted({0, size // 2, size - 1}) for b in sorted({0, size - 1})]
    search_all(Trial(subject, World.of(sids, size, layout=layout)), width=2 * len(sids))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [33, 65, 127, 129])
def test_every_token_of_a_ragged_tail_is_found(subject: Subject, size: int, layout: Layout) -> None:
    trial = Trial(subject, World.of([(v, 0) for v in range(size)], size, layout=layout))
    found = trial.host(trial.walk([size]))
    assert found.tokens[0, :, 0].tolist() == list(range(size))
    assert found.rows[0].tolist() == list(range(size))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_count_across_words(subject: Subject, layout: Layout) -> None:
    # The child's row depends on how many valid tokens lie in earlier words, and earlier in its own.
    rng = np.random.default_rng(0)
    sids = [(a, int(b), 0) for a in range(5) for b in rng.choice(300, 90, replace=False)]
    search_all(Trial(subject, World.of(sids, [5, 300, 1], layout=layout)), width=200)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_hub_row_among_single_children(subject: Subject, level: int, layout: Layout) -> None:
    hub: list[tuple[int, ...]] = [
        (*(3,) * level, v, *(1,) * (2 - level)) for v in range(0, 1500, 3)
    ]
    chain: list[tuple[int, ...]] = [(a, a % 7, a % 5) for a in range(40, 60)]
    trial = Trial(subject, World.of(hub + chain, 1500, layout=layout))
    search_all(trial, width=70, batch=1)


def test_chains_of_single_children(subject: Subject) -> None:
    sids = [(a, a * 7 % 11, a * 3 % 13, a * 5 % 17, a % 2) for a in range(30)]
    for normalize in subject.capabilities.normalizers:
        search_all(Trial(subject, World.of(sids), normalize), width=12)


def test_one_item(subject: Subject) -> None:
    search_all(Trial(subject, World.of([(4, 0, 6)], 7)), width=1)
    search_all(Trial(subject, World.of([(4, 0, 6)], 7)), width=9)
    search_all(Trial(subject, World.of([(0,)], 1)), width=2)


@pytest.mark.parametrize("levels", [1, 2, 3, 4, 5, 6, 7, 8])
def test_as_many_levels_as_there_are(subject: Subject, levels: int) -> None:
    rng = np.random.default_rng(levels)
    sids = sorted({tuple(sid) for sid in rng.integers(0, 4, (60, levels)).tolist()})
    search_all(Trial(subject, World.of(sids, 4)), width=25)


def test_codebooks_of_unequal_sizes(subject: Subject) -> None:
    rng = np.random.default_rng(0)
    sizes = [3, 130, 1, 64, 7]
    sids = sorted({tuple(int(rng.integers(0, v)) for v in sizes) for _ in range(300)})
    search_all(Trial(subject, World.of(sids, sizes)), width=40)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", DTYPE_EDGES)
def test_tokens_at_the_edge_of_a_dtype(
    subject: Subject, size: int, layout: Layout, tmp_path: Path
) -> None:
    # 255, 256, 32767, 32768, 65535 and 65536 survive build, save, load and decode.
    last = size - 1
    sids = [(last, 0), (last, last), (0, last), (last - 1, 1)]
    world = World.of(sids, size, layout=layout)
    world.index.save(tmp_path / "index")
    loaded = replace(world, index=Index.load(tmp_path / "index"))
    trial = Trial(subject, loaded)
    found = trial.host(trial.walk([4, 4]))
    assert sorted(map(tuple, found.tokens[0].tolist())) == sorted(sids)


@pytest.mark.slow
def test_rows_beyond_16_bits(subject: Subject) -> None:
    # The last rows of a table of 70 000; row ids that lose their upper half lead elsewhere.
    sids = [(n // 300, n % 300, n % 7) for n in range(70_000)]
    trial = Trial(subject, World.of(sids, [234, 300, 7]))
    beams = trial.begin(2, prefix=[(233,), (219,)])
    for width in (300, 300):
        beams = trial.step(beams, width, trial.logits(beams, 0.0))
    assert trial.host(beams).count.tolist() == [100, 300]


def test_tokens_of_another_level_starve_nobody(subject: Subject) -> None:
    # All levels share one vocabulary; at level 1 the tokens of level 2 have the highest logits.
    sids = [(a, 10 + a, 20 + b) for a in range(6) for b in range(3)]
    trial = Trial(subject, World.of(sids, 30))
    logits = np.concatenate([np.zeros(10), np.full(10, 50.0), np.full(10, 60.0)])
    beams = trial.walk([6, 6, 18], logits)
    assert trial.host(beams).count.tolist() == [18]


def test_the_order_of_the_input_does_not_matter(subject: Subject) -> None:
    rows = [(5, 6, 7), (1, 2, 3), (5, 6, 8), (1, 2, 4), (1, 2, 3)]
    found = []
    for sids in (rows, sorted(rows), sorted(set(rows), reverse=True)):
        trial = Trial(subject, World.of(sids, 9))
        found.append(trial.host(trial.walk([4, 4, 4], np.linspace(0, 1, 9))))
    assert found[0].count.tolist() == [4]
    assert found[0].bits() == found[1].bits() == found[2].bits()


@pytest.mark.needs("variable length")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_semantic_ids_of_several_lengths(subject: Subject, layout: Layout) -> None:
    rng = np.random.default_rng(3)
    sids: list[tuple[int, ...]] = [(a,) for a in range(0, 9, 4)]
    sids += [(a, b) for a in range(1, 9, 4) for b in range(0, 70, 3)]
    sids += [(a, int(b), int(c)) for a in (2, 3, 6, 7) for b in rng.choice(70, 9) for c in (0, 69)]
    search_all(Trial(subject, World.of(sids, [9, 70, 70], layout=layout)), width=90)


@pytest.mark.needs("variable length")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_end_tokens_at_every_level(subject: Subject, layout: Layout) -> None:
    sids = [(1,), (1, 2), (1, 2, 3), (1, 3), (0,), (0, 63), (0, 63, 63)]
    trial = Trial(subject, World.of(sids, 64, end_token=True, layout=layout))
    search_all(trial, width=12)


@pytest.mark.needs("variable length")
def test_a_last_level_that_no_semantic_id_reaches(subject: Subject) -> None:
    # The codebooks promise three levels; the last table is empty.
    search_all(Trial(subject, World.of([(0, -1, -1), (2, 0, -1)], [3, 3, 4])), width=3)
