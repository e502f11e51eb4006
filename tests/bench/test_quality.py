"""The quality benchmark on a data set of a few items: what its rows hold, and that they add up."""

import json
from dataclasses import replace

import numpy as np
import pytest

from beamsieve.errors import InputError
from beamsieve.models.config import ModelConfig
from beamsieve.models.sequences import Sequences
from beamsieve_bench import generation_time, quality
from beamsieve_bench.quality_data import QualityData, load, pack

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
    work, out = tmp_path / "work", tmp_path / "out"
    words = ["--data", str(tmp_path / "d.npz"), "--model", "deco-kd", "--seeds", "2"]
    quality.main([*words, "--work", str(work), "--out", str(out), "--set", "patience=5"])
    mean = json.loads(capsys.readouterr().out)
    runs = [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]
    assert [run["seed"] for run in runs] == mean["seeds"] == [0, 1]
    assert (work / "letter-beauty-fused-gr-1.safetensors").exists()
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
    recalls = [run["filter_first"]["recall_at_10"] for run in runs]
    assert mean["filter_first.recall_at_10"]["mean"] == pytest.approx(np.mean(recalls))


def test_generation_is_timed_for_every_model(tmp_path, monkeypatch):
    pack(a_data_set(), tmp_path / "d.npz")
    monkeypatch.setitem(generation_time.SIZES, "small", SIZES)
    monkeypatch.setattr(generation_time, "ROUNDS", 2)
    words = ["--data", str(tmp_path / "d.npz"), "--backend", "torch:cpu", "--batch", "2"]
    generation_time.main(
        [*words, "--sizes", "small", "--dtypes", "float32", "--out", str(tmp_path), "--beams", "4"]
    )
    rows = json.loads((tmp_path / "generation.json").read_text())
    assert [row["model"] for row in rows] == ["flat-gr", "fused-gr", "deco"]
    assert all(row["read_ms"] > 0 and row["search_ms"] > 0 for row in rows)
