"""It trains, saves and recommends like the other models."""

import json

import numpy as np
import pytest
import torch

import beamsieve as bs
from beamsieve.errors import InputError
from beamsieve.models import (
    Histories,
    TrainingSettings,
    Wide,
    WideConfig,
    load_checkpoint,
    recommend,
    train,
)
from beamsieve.models.free import search_freely
from beamsieve.models.wide import Encoder, register_encoder


def a_world():
    """Twelve items in a ring: after each comes the next."""
    draw = np.random.default_rng(0)
    sids = np.stack(np.unravel_index(draw.permutation(60)[:12], (3, 4, 5)), 1)
    index = bs.Index.build(
        bs.Catalog.from_arrays(sids, items=[f"i{n}" for n in range(12)], codebooks=[3, 4, 5])
    )
    rows = [[f"i{(start + n) % 12}" for n in range(6)] for start in range(12)]
    asked = [row[:5] for row in rows]
    return index, Histories.from_lists(rows), Histories.from_lists(asked)


def test_train_save_recommend(tmp_path):
    index, histories, asked = a_world()
    report = train(
        histories,
        index,
        tmp_path / "wide.safetensors",
        config=WideConfig(width=32, layers=1, feed=64, encoder_layers=1, dropout=0.0, longest=6),
        settings=TrainingSettings(
            epochs=50,
            warm_up_steps=10,
            average=0.9,
            batch=4,
            learning_rate=5e-3,
            validation_share=0.0,
            drop_history=0.0,
            threads=1,
        ),
    )
    found = load_checkpoint(report.checkpoint, index)
    assert isinstance(found.model, Wide)
    rows = list(recommend(report.checkpoint, index, asked, k=3, width=8, backend="torch:cpu"))
    right = [row.items[0].item == f"i{(n + 5) % 12}" for n, row in enumerate(rows)]
    assert sum(right) >= 10
    reading = found.model.read(torch.full((2, 1, 3), -1), torch.zeros(2, dtype=torch.int64))
    beams = search_freely(found.model, reading, 50)
    assert beams.tokens.shape == (2, 50, 3)
    assert torch.equal(beams.tokens[0], beams.tokens[1])


class MeanOfItems(Encoder):
    """A context of one token that counts: the mean of what was read, by linear layers alone."""

    def __init__(self, config, codebooks):
        super().__init__()
        self.codes = torch.nn.ModuleList(torch.nn.Embedding(n + 1, config.width) for n in codebooks)

    def states(self, histories):
        parts = [
            embed(histories[..., level].clamp(min=0)) for level, embed in enumerate(self.codes)
        ]
        x = torch.stack(parts).sum(0)
        return torch.cat([x.new_zeros(len(x), 1, x.shape[2]), x], 1)


def test_an_encoder_of_ones_own_trains_saves_and_recommends(tmp_path):
    register_encoder("mean of items", MeanOfItems)
    with pytest.raises(InputError, match="already"):
        register_encoder("history", MeanOfItems)
    with pytest.raises(InputError, match="encoder is 'none', and registered are history, mean of"):
        Wide(WideConfig(encoder="none"), (3, 4, 5))
    index, histories, asked = a_world()
    path = tmp_path / "wide.safetensors"
    config = WideConfig(width=32, layers=1, feed=48, longest=6, encoder="mean of items")
    train(histories, index, path, config=config, settings=TrainingSettings(epochs=2, threads=1))
    found = load_checkpoint(path, index).model
    assert isinstance(found, Wide)
    assert isinstance(found.encoder, MeanOfItems)
    rows = list(recommend(path, index, asked, k=3, width=8, backend="torch:cpu"))
    assert len(rows) == 12
    assert all(len(row.items) == 3 for row in rows)


def test_a_changed_model_is_read_again():
    torch.manual_seed(0)
    model = Wide(WideConfig(width=32, feed=48, longest=4), (3, 4, 5)).eval()
    reading = model.read(torch.zeros(1, 1, 3, dtype=torch.int64), torch.ones(1, dtype=torch.int64))
    before = search_freely(model, reading, 5)
    with torch.no_grad():
        model.heads[0].weight.mul_(-1.0)
    after = search_freely(model, reading, 5)
    assert not torch.equal(before.scores, after.scores)


def test_the_command_line_trains_one(tmp_path):
    from typer.testing import CliRunner

    from beamsieve.cli import app

    index, histories, _ = a_world()
    index.save(tmp_path / "index.safetensors")
    lines = [{"history": histories.history(row)} for row in range(12)]
    (tmp_path / "histories.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    places = [str(tmp_path / name) for name in ("histories.jsonl", "index.safetensors")]
    words = ["train", *places, "-o", str(tmp_path / "wide.safetensors"), "--model", "wide"]
    done = CliRunner().invoke(app, [*words, "--epochs", "1", "--model-width", "32"])
    assert done.exit_code == 0, done.output
    model = load_checkpoint(tmp_path / "wide.safetensors", index).model
    assert isinstance(model, Wide)
    assert model.config.width == 32
    done = CliRunner().invoke(app, [*words, "--pointer"])
    assert done.exit_code == 2
    assert "no pointer" in done.output
