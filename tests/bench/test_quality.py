"""The quality benchmark on a data set of a few items: what its rows hold, and that they add up."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from beamsieve.catalog import Catalog
from beamsieve.engine import Engine
from beamsieve.errors import InputError
from beamsieve.index import Index
from beamsieve.models.config import ModelConfig
from beamsieve.models.data import read_histories
from beamsieve.models.family import make_model
from beamsieve.models.sequences import Sequences
from beamsieve_bench import generation_time, quality, quality_tables
from beamsieve_bench.fleet import Trainee
from beamsieve_bench.fleet_data import compacted, thinned
from beamsieve_bench.quality_data import ROOT, QualityData, load, pack
from beamsieve_bench.quality_measure import ItemLists, measure, ranked, shared


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The models are tiny, and a second thread only waits for the first."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


DATA = Path(os.environ.get("BEAMSIEVE_DATA", ROOT.parent / "shared/data"), "minionerec-industrial")

SIZES = ModelConfig(width=16, layers=1, heads=2, decoder_width=16, decoder_layers=1, longest=6)


def a_data_set() -> QualityData:
    """Users go round 24 items, one after the other."""
    cells = np.random.default_rng(0).permutation(6 * 6)[:24]
    sids = np.stack([cells // 6, cells % 6], 1)
    starts = np.arange(40) % 24
    sequences = [(start + np.arange(6)) % 24 for start in starts]
    judged = Sequences.of([sequence[:-1] for sequence in sequences])
    targets = np.array([sequence[-1] for sequence in sequences])
    return QualityData("letter-beauty", sids, (6, 6), judged, 1.0, judged, targets)


def test_a_packed_data_set_comes_back_whole(tmp_path):
    data = a_data_set()
    pack(data, tmp_path / "d.npz")
    again = load(str(tmp_path / "d.npz"))
    assert (again.name, again.codebooks, again.validation_share) == ("letter-beauty", (6, 6), 1.0)
    for name in ("sids", "targets"):
        assert np.array_equal(getattr(again, name), getattr(data, name))
    assert np.array_equal(again.training.items, data.training.items)
    assert len(again.judged_histories(7)) == 7


@pytest.mark.real_data
@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the real data set {DATA}")
def test_published_rows_keep_their_items():
    data = load("minionerec-industrial")
    histories = read_histories(DATA / "test.csv.gz")
    index = data.index()
    codes = json.loads((DATA / "Industrial_and_Scientific.index.json").read_text())
    for row in (0, 100, 4532):
        assert data.judged[row].tolist() == [int(item) for item in histories.history(row)]
        assert data.targets[row] == int(str(histories.target(row)))
    for item in (0, 17, 3685):
        sid = [int(code[3:-1]) for code in codes[str(item)]]
        assert item in index.items_of(sid)


def test_a_data_set_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="There is no data set 'nothing'"):
        load("nothing")
    with pytest.raises(InputError, match="--folder"):
        load("letter-beauty", tmp_path)
    with pytest.raises(InputError, match="cannot be read as a packed"):
        load(str(tmp_path / "d.npz"))


def test_one_command_trains_teacher_and_model_and_judges_them(tmp_path, monkeypatch, capsys):
    pack(a_data_set(), tmp_path / "d.npz")
    monkeypatch.setitem(quality.SIZES, "letter-beauty", SIZES)
    settings = replace(quality.SETTINGS["letter-beauty"], epochs=2, batch=16)
    monkeypatch.setitem(quality.SETTINGS, "letter-beauty", settings)
    out = tmp_path / "out"
    words = ["--data", str(tmp_path / "d.npz"), "--model", "deco-kd", "--seeds", "2"]
    quality.main([*words, "--out", str(out), "--set", "patience=5"])
    mean = json.loads(capsys.readouterr().out)
    runs = [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]
    assert [run["seed"] for run in runs] == mean["seeds"] == [0, 1]
    for run in runs:
        assert run["rows"] == 40
        assert run["settings"]["patience"] == 5
        assert run["valid_scores"][0] == 40 * 6  # every first code is some item's
        assert run["all_scores"] == [40 * 6, 40 * 6 * 6]
        # As wide as the catalog, both ways end with the same items.
        assert run["filter_first"]["recall_at_50"] == run["score_first"]["recall_at_50"] == 1
        assert run["overlap_at_50"] == 1
        assert run["work_saved"][0] == 0 < run["work_saved"][1] < 1
        assert 0 <= run["illegal_free_share"] < 1
    quality_tables.main([str(out)])
    shown = capsys.readouterr().out.splitlines()
    assert shown[2].startswith("| letter-beauty | popularity |")
    assert shown[3].startswith("|  | deco-kd | 2 | ")
    assert "| letter-beauty | deco-kd | " in shown[-1]
    assert "0.00000 ± 0.00000" in shown[-1]  # both ways find the same
    recalls = [run["filter_first"]["recall_at_10"] for run in runs]
    assert mean["filter_first.recall_at_10"]["mean"] == pytest.approx(np.mean(recalls))


@pytest.mark.parametrize("asked", [{}, {"validity": 3.0}])
def test_a_models_own_settings_give_way_to_what_is_asked_for(asked):
    work = quality.Work(a_data_set(), "cpu", asked)
    charged = quality.SETTINGS["letter-beauty"].validity
    weights = [work.settings_of(model, 3).validity for model in ("fused-gr", "fused-gr-uncharged")]
    assert weights == [asked.get("validity", charged), asked.get("validity", 0.0)]
    assert charged != 0


def test_generation_is_timed_for_every_model(tmp_path, monkeypatch):
    pack(a_data_set(), tmp_path / "d.npz")
    monkeypatch.setitem(generation_time.SIZES, "small", SIZES)
    words = ["--data", str(tmp_path / "d.npz"), "--backend", "torch:cpu", "--batch", "2"]
    words += ["--rounds", "2"]
    generation_time.main(
        [*words, "--sizes", "small", "--dtypes", "float32", "--out", str(tmp_path), "--beams", "4"]
    )
    rows = json.loads((tmp_path / "generation.json").read_text())
    assert [row["model"] for row in rows] == ["deco", "fused-gr", "flat-gr"]
    assert "| small | fused-gr |" in quality_tables.times(rows)[3]
    assert all(row["read_ms"] > 0 and row["search_ms"] > 0 for row in rows)


def test_side_by_side_trainings_learn_as_the_library_does(monkeypatch):
    monkeypatch.setitem(quality.SIZES, "letter-beauty", replace(SIZES, dropout=0.0))
    changes = {"epochs": 20, "batch": 8, "learning_rate": 1e-2, "warm_up_steps": 10}
    charged = {"validity": 0.1, "decay": 0.5}
    work = quality.Work(a_data_set(), "cpu", {**changes, **charged, "average": 0.9})
    trained = quality.side_by_side([work], ["deco-kd"], [0], 60.0)
    assert [model for _, model, *_ in trained] == ["deco-kd"]
    for _, _, _, checkpoint, report in trained:
        assert report["epochs"] == 20
        assert report["validation_loss"] < 2.3  # a model that knows nothing costs ln 24 = 3.18
        judged = measure(checkpoint, work.index, work.data.judged_histories(), backend="torch:cpu")
        assert judged["filter_first"]["recall_at_5"] > 0.4


def test_lists_of_items_are_those_of_the_engine():
    sids = np.random.default_rng(1).integers(0, 3, (30, 3))  # many items share a semantic ID
    index = Index.build(Catalog.from_arrays(sids, codebooks=3))
    engine = Engine(index, "torch:cpu")
    logits = torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(0))
    beams = engine.search(lambda step, beams: logits[step - 1, :, None].expand(
        4, beams.width, 3), [2, 4, 6], 4)  # fmt: skip
    for count in (3, 10, 40):
        found = ItemLists(index)(beams, count)
        wanted = [index.items.numbers(hits.items) for hits in engine.results(beams, count)]
        for row, numbers in zip(found, wanted, strict=True):
            assert row[row >= 0].tolist() == numbers.tolist()


def test_ranks_and_overlaps():
    items = np.array([[3, 1, 2], [4, 5, -1]])
    found = ranked(items, np.array([1, 9]))
    assert found["recall_at_5"] == 0.5
    assert found["ndcg_at_5"] == pytest.approx(0.5 / np.log2(3))
    assert shared(items, np.array([[1, 3, 7], [4, 5, -1]]), 2) == 1.0
    assert shared(items, np.array([[1, 3, 7], [4, 6, 5]]), 3) == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_thinned_sequences_keep_their_order_and_one_item_at_least():
    numbers = torch.tensor([[1, 2, 3, 4], [5, 6, -1, -1], [7, -1, -1, -1], [-1, -1, -1, -1]])
    torch.manual_seed(0)
    lengths = set()
    for _ in range(50):
        for row, before in zip(thinned(numbers, 0.5).tolist(), numbers.tolist(), strict=True):
            kept = [item for item in row if item >= 0]
            assert row == kept + [-1] * (4 - len(kept))
            assert kept == [item for item in before if item in kept]
            assert kept or before[0] < 0
            lengths.add(len(kept))
    assert lengths == {0, 1, 2, 3, 4}
    assert thinned(numbers, 0.0) is numbers


def test_real_places_come_first_in_a_fixed_number_of_slots():
    real = torch.tensor([False, True, True, False, True])
    assert compacted(real, 4, 9).tolist() == [1, 2, 4, 9]
    assert compacted(real, 2, 9).tolist() == [1, 2]
    assert compacted(~real, 3, 9).tolist() == [0, 3, 9]


@pytest.mark.parametrize("architecture", ["deco", "flat-gr"])
def test_a_fleets_step_trains_on_every_item_that_is_left(architecture):
    data = a_data_set()
    work = quality.Work(data, "cpu", {"batch": 16, "drop_history": 0.0, "validity": 0.1})
    work.sizes = replace(SIZES, architecture=architecture)
    model = make_model(work.sizes, work.index.codebooks)
    trainee = Trainee("one", model, work.sids, work.sequences, work.settings)
    for bucket in trainee.buckets:
        bucket.chosen.copy_(torch.arange(len(bucket.chosen)))
        batch = trainee._batch(bucket)
        came = len(batch.targets) - batch.drawn
        numbers = bucket.numbers[bucket.chosen]
        row, place = torch.nonzero(numbers >= 0).T
        assert torch.equal(batch.rows[: len(row)], row)
        assert torch.equal(batch.places[: len(row)], place)
        assert torch.equal(batch.targets[: len(row)], trainee.sids[numbers[row, place]])
        assert (batch.targets[len(row) : came] == -1).all()
        drawn = batch.targets[came:]
        assert 0 < (drawn[:, 0] >= 0).sum() <= batch.drawn
        assert batch.rows.max() < len(batch.histories)
        assert all(logits.isfinite().all() for logits in model.logits(batch))
