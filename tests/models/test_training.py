"""Training learns, resumes bit for bit, stops when it should, and leaves no half file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from beamsieve.catalog import Catalog
from beamsieve.errors import CheckpointError, InputError, TrainingError
from beamsieve.index import Index
from beamsieve.models import loop
from beamsieve.models.batches import Batch, training_batches
from beamsieve.models.checkpoint import (
    load_checkpoint,
    read_tensors,
    write_tensors,
)
from beamsieve.models.config import ModelConfig
from beamsieve.models.data import Histories
from beamsieve.models.losses import spelling_loss, training_loss
from beamsieve.models.resuming import FORMAT as STATE
from beamsieve.models.resuming import state_path
from beamsieve.models.training import TrainingSettings, train

ITEMS = 24
CONFIG = ModelConfig(width=16, layers=1, heads=2, decoder_width=16, longest=8, dropout=0.1)
SETTINGS = TrainingSettings(
    epochs=4, batch=16, learning_rate=3e-3, warm_up_steps=5, drop_history=0.1, threads=1
)


def make_index(seed: int = 0) -> Index:
    sids = np.random.default_rng(seed).permutation(6 * 6)[:ITEMS]
    pairs = np.stack([sids // 6, sids % 6], 1)
    return Index.build(Catalog.from_arrays(pairs, items=np.arange(ITEMS), codebooks=6))


def make_histories(seed: int = 0, count: int = 80) -> Histories:
    """Users go round the items, one after the other: the next item follows from the last."""
    starts = np.random.default_rng(seed).integers(0, ITEMS, count)
    return Histories.from_lists([((start + np.arange(6)) % ITEMS).tolist() for start in starts])


INDEX = make_index()
HISTORIES = make_histories()


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_file(path)


def same(first: Path, second: Path) -> bool:
    a, b = weights(first), weights(second)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_it_learns_what_comes_next(tmp_path):
    settings = replace(SETTINGS, epochs=80, patience=80, seed=1)
    report = train(HISTORIES, INDEX, tmp_path / "m", config=CONFIG, settings=settings)
    assert report.stopped == "epochs"
    assert report.transitions == 80 * 6 - 8
    # A model that knows nothing costs ln 24 = 3.18 nats.
    assert report.validation_loss < 0.5
    model = load_checkpoint(tmp_path / "m", INDEX).model
    with torch.no_grad():
        sids = torch.tensor([[INDEX.sid_of_leaf(_leaf(item)).tolist() for item in (3, 4, 5)]])
        target = torch.zeros((1, 2), dtype=torch.int64)
        batch = Batch(sids, target, torch.tensor([0]), torch.tensor([3]))
        first = model.logits(batch)[0]
    assert int(first.argmax()) == int(INDEX.sid_of_leaf(_leaf(6))[0])


def _leaf(item: int) -> int:
    return int(np.flatnonzero(INDEX.leaf_items.numbers == INDEX.items.numbers([item])[0])[0])


def test_the_same_seed_gives_the_same_weights(tmp_path):
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        train(
            HISTORIES, INDEX, tmp_path / name, config=CONFIG, settings=replace(SETTINGS, seed=seed)
        )
    assert same(tmp_path / "a", tmp_path / "b")
    assert not same(tmp_path / "a", tmp_path / "c")


def test_a_resumed_training_is_the_uninterrupted_one_bit_for_bit(tmp_path):
    whole = train(HISTORIES, INDEX, tmp_path / "whole", config=CONFIG, settings=SETTINGS)
    parts = tmp_path / "parts"
    train(HISTORIES, INDEX, parts, config=CONFIG, settings=replace(SETTINGS, epochs=2))
    torch.manual_seed(99)  # what happened in between must not matter
    rest = train(HISTORIES, INDEX, parts, config=CONFIG, settings=SETTINGS, resume=True)
    assert (rest.epochs, rest.steps, rest.best_epoch) == (4, whole.steps, whole.best_epoch)
    assert rest.validation_loss == whole.validation_loss
    assert same(tmp_path / "whole", parts)
    assert same(state_path(tmp_path / "whole"), state_path(parts))


def test_interrupted_within_an_epoch_it_resumes_from_the_last_whole_one(tmp_path, monkeypatch):
    train(HISTORIES, INDEX, tmp_path / "whole", config=CONFIG, settings=SETTINGS)
    path = tmp_path / "interrupted"
    calls = 0
    real = training_batches

    def stops_in_the_third_epoch(*args, **options):
        nonlocal calls
        calls += 1
        for number, batch in enumerate(real(*args, **options)):
            if calls == 3 and number == 2:
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(loop, "training_batches", stops_in_the_third_epoch)
    with pytest.raises(KeyboardInterrupt):
        train(HISTORIES, INDEX, path, config=CONFIG, settings=SETTINGS)
    assert load_checkpoint(path, INDEX).training["epoch"] <= 2
    report = train(HISTORIES, INDEX, path, config=CONFIG, settings=SETTINGS, resume=True)
    assert report.epochs == 4
    assert same(tmp_path / "whole", path)


def test_torch_is_left_as_it_was(tmp_path):
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    train(HISTORIES, INDEX, tmp_path / "m", config=CONFIG, settings=replace(SETTINGS, epochs=1))
    assert torch.equal(torch.rand(3), wanted)
    assert torch.get_num_threads() == threads


def test_it_stops_early_and_keeps_the_best(tmp_path):
    # Random histories: after a while there is only noise to learn.
    rng = np.random.default_rng(0)
    histories = Histories.from_lists(rng.integers(0, ITEMS, (60, 6)).tolist())
    settings = replace(SETTINGS, epochs=500, patience=3, learning_rate=1e-2)
    report = train(histories, INDEX, tmp_path / "m", config=CONFIG, settings=settings)
    assert report.stopped == "patience"
    assert report.epochs == report.best_epoch + 3
    saved = load_checkpoint(tmp_path / "m", INDEX).training
    assert saved["epoch"] == report.best_epoch
    assert saved["best_loss"] == report.validation_loss


def test_a_time_limit_begins_no_epoch_that_would_pass_it(tmp_path):
    settings = replace(SETTINGS, epochs=500, minutes=1e-9)
    report = train(HISTORIES, INDEX, tmp_path / "m", config=CONFIG, settings=settings)
    assert (report.stopped, report.epochs) == ("minutes", 1)


def test_without_held_out_histories_the_last_epoch_is_kept(tmp_path):
    settings = replace(SETTINGS, validation_share=0.0)
    report = train(HISTORIES, INDEX, tmp_path / "m", config=CONFIG, settings=settings)
    assert report.best_epoch == 4
    assert np.isnan(report.validation_loss)
    resumed = replace(settings, epochs=5)
    report = train(HISTORIES, INDEX, tmp_path / "m", config=CONFIG, settings=resumed, resume=True)
    assert report.best_epoch == 5


def test_a_loss_that_is_no_number_stops_and_the_last_good_checkpoint_stays(tmp_path, monkeypatch):
    path = tmp_path / "m"
    train(HISTORIES, INDEX, path, config=CONFIG, settings=replace(SETTINGS, epochs=1))
    before = path.read_bytes()
    real = training_loss
    calls = 0

    def turns_bad(*args, **options):
        nonlocal calls
        calls += 1
        return real(*args, **options) * (float("nan") if calls == 3 else 1.0)

    monkeypatch.setattr(loop, "training_loss", turns_bad)
    with pytest.raises(TrainingError, match=r"step 8 \(epoch 2\); the checkpoint of epoch 1 stays"):
        train(HISTORIES, INDEX, path, config=CONFIG, settings=SETTINGS, resume=True)
    assert path.read_bytes() == before
    monkeypatch.undo()
    assert train(HISTORIES, INDEX, path, config=CONFIG, settings=SETTINGS, resume=True).epochs == 4


def test_a_validation_loss_that_is_no_number_is_never_the_best(tmp_path, monkeypatch):
    path = tmp_path / "m"
    train(HISTORIES, INDEX, path, config=CONFIG, settings=replace(SETTINGS, epochs=1))
    before = path.read_bytes()
    real = spelling_loss  # what is validated; steps are of another loss

    def bad_when_validated(*args, **options):
        return real(*args, **options) * float("nan")

    monkeypatch.setattr(loop, "spelling_loss", bad_when_validated)
    with pytest.raises(TrainingError, match="loss is nan behind epoch 2; the checkpoint"):
        train(HISTORIES, INDEX, path, config=CONFIG, settings=SETTINGS, resume=True)
    assert path.read_bytes() == before


def test_a_state_of_other_data_or_settings_is_refused(tmp_path):
    path = tmp_path / "m"
    train(HISTORIES, INDEX, path, config=CONFIG, settings=SETTINGS)
    other = make_histories(seed=5)
    for changed, said in (
        ({"histories": other}, "another training: data was"),
        ({"settings": replace(SETTINGS, batch=8)}, "batch was 16, now it is 8"),
        ({"config": replace(CONFIG, layers=2)}, "layers was 1, now it is 2"),
        ({"index": make_index(3)}, "fingerprint was"),
    ):
        given: dict[str, Any] = {
            "histories": HISTORIES,
            "index": INDEX,
            "config": CONFIG,
            "settings": SETTINGS,
        }
        given |= changed
        with pytest.raises(CheckpointError, match=said):
            train(checkpoint=path, resume=True, **given)


def test_a_training_that_can_hold_nothing_out_says_so(tmp_path, caplog):
    alone = Histories.from_lists([[item] for item in range(ITEMS)])
    settings = replace(SETTINGS, epochs=1)
    report = train(alone, INDEX, tmp_path / "m", config=CONFIG, settings=settings)
    assert np.isnan(report.validation_loss)
    assert "No history has two items, so none is held out" in caplog.text


def test_resuming_without_a_state_starts_anew_and_says_so(tmp_path, caplog):
    report = train(HISTORIES, INDEX, tmp_path / "m", config=CONFIG, settings=SETTINGS, resume=True)
    assert report.epochs == 4
    assert "training starts anew" in caplog.text


def test_resuming_without_the_checkpoint_of_the_best_epoch_is_refused(tmp_path):
    settings = replace(SETTINGS, epochs=1)
    train(HISTORIES, INDEX, tmp_path / "m", config=CONFIG, settings=settings)
    (tmp_path / "m").unlink()
    with pytest.raises(CheckpointError, match=r"is gone.*epoch kept so far is 1"):
        train(HISTORIES, INDEX, tmp_path / "m", config=CONFIG, settings=settings, resume=True)


def test_a_flat_model_that_was_trained_to_read_otherwise_is_not_gone_on_with(tmp_path):
    settings, config = replace(SETTINGS, epochs=1), replace(CONFIG, architecture="flat-gr")
    train(HISTORIES, INDEX, tmp_path / "m", config=config, settings=settings)
    state = state_path(tmp_path / "m")
    tensors, metadata = read_tensors(state, STATE, 3)
    write_tensors(state, tensors, {**metadata, "version": 2})
    with pytest.raises(CheckpointError, match="FlatGR of version 2"):
        train(HISTORIES, INDEX, tmp_path / "m", config=config, settings=settings, resume=True)


def test_nothing_to_learn_is_refused(tmp_path):
    with pytest.raises(InputError, match="nothing to learn"):
        train(Histories.from_lists([[], []]), INDEX, tmp_path / "m", config=CONFIG)


def test_long_histories_are_trained_in_pieces(tmp_path):
    histories = Histories.from_lists([list(range(20)), [1, 2]])
    settings = replace(SETTINGS, epochs=1, validation_share=0.0)
    report = train(histories, INDEX, tmp_path / "m", config=CONFIG, settings=settings)
    assert (report.split, report.transitions) == (1, 22)


def test_an_item_twice_in_a_row_stays_and_is_counted(tmp_path):
    histories = Histories.from_lists([[1, 1, 1, 2], [2], [], [2, 2], [2]])
    settings = replace(SETTINGS, epochs=1, validation_share=0.0)
    report = train(histories, INDEX, tmp_path / "m", config=CONFIG, settings=settings)
    assert (report.repeats, report.transitions) == (3, 8)


def test_a_loss_that_is_no_number_in_the_first_epoch_leaves_no_checkpoint(tmp_path):
    settings = replace(SETTINGS, learning_rate=1e30, warm_up_steps=1)
    with pytest.raises(TrainingError, match="no checkpoint was written"):
        train(HISTORIES, INDEX, tmp_path / "m", config=CONFIG, settings=settings)
    assert list(tmp_path.iterdir()) == []


def test_the_largest_seed_trains(tmp_path):
    settings = replace(SETTINGS, epochs=1, seed=(1 << 32) - 1)
    assert train(HISTORIES, INDEX, tmp_path / "m", config=CONFIG, settings=settings).epochs == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epochs": 0}, "epochs is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0"),
        ({"average": -0.1}, "average is -0.1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"learning_rate": float("inf")}, "learning_rate is inf"),
        ({"weight_decay": float("inf")}, "weight_decay inf"),
        ({"minutes": 0.0}, "minutes is 0.0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1 << 32}, "seed is 4294967296"),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_settings_out_of_range_are_refused(change, said):
    with pytest.raises(InputError, match=said):
        replace(SETTINGS, **change)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_device_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="torch finds no GPU"):
        train(
            HISTORIES,
            INDEX,
            tmp_path / "m",
            config=CONFIG,
            settings=replace(SETTINGS, device="cuda"),
        )


def test_the_learning_rate_rises_stays_and_falls():
    settings = TrainingSettings(learning_rate=0.1, warm_up_steps=4, decay=0.5)
    rates = [settings.rate(step, passed) for step, passed in ((1, 0), (4, 0.5), (9, 0.75), (10, 1))]
    assert rates == pytest.approx([0.025, 0.1, 0.05, 0.0])
    assert replace(settings, decay=0.0).rate(10, 1.0) == 0.1
    with pytest.raises(InputError, match=r"decay is 1\.5"):
        TrainingSettings(decay=1.5)


def test_where_the_learning_rate_falls_the_last_weights_are_kept(tmp_path, monkeypatch):
    losses = iter([3.0, 1.0, 2.0, 2.5])
    monkeypatch.setattr(loop.Run, "_validate", lambda run: next(losses))
    settings = replace(SETTINGS, epochs=4, decay=0.5, patience=1)
    report = train(HISTORIES, INDEX, tmp_path / "m", config=CONFIG, settings=settings)
    assert (report.epochs, report.best_epoch, report.validation_loss) == (4, 4, 2.5)
    assert load_checkpoint(tmp_path / "m", INDEX).training["epoch"] == 4


def test_epochs_belong_to_a_training_whose_learning_rate_falls_by_them(tmp_path):
    path = tmp_path / "m"
    settings = replace(SETTINGS, epochs=2, decay=0.5)
    train(HISTORIES, INDEX, path, config=CONFIG, settings=settings)
    longer = replace(settings, epochs=4)
    with pytest.raises(CheckpointError, match="epochs was 2, now it is 4"):
        train(HISTORIES, INDEX, path, config=CONFIG, settings=longer, resume=True)
