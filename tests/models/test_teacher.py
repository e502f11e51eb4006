"""A teacher's share of the targets, and checkpoints of every model and of earlier versions."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from beamsieve.catalog import Catalog
from beamsieve.errors import CheckpointError, InputError
from beamsieve.index import Index
from beamsieve.models import (
    Checkpoint,
    Histories,
    ModelConfig,
    TrainingSettings,
    load_checkpoint,
    make_model,
    save_checkpoint,
    train,
)
from beamsieve.models.batches import Batch
from beamsieve.models.checkpoint import _checksum
from beamsieve.models.family import take_over

from .family import KINDS, NAMES

CONFIG = ModelConfig(width=16, layers=1, heads=2, decoder_width=16, longest=6, dropout=0.0)
SETTINGS = TrainingSettings(
    epochs=1, batch=16, learning_rate=1e-2, warm_up_steps=2, drop_history=0.0, threads=1
)
HISTORIES = Histories.from_lists([[(start + n) % 12 for n in range(5)] for start in range(24)])


def an_index(seed: int = 0) -> Index:
    cells = np.random.default_rng(seed).permutation(16)[:12]
    sids = np.stack([cells // 4, cells % 4], 1)
    return Index.build(Catalog.from_arrays(sids, items=np.arange(12), codebooks=4))


INDEX = an_index()


def checkpoint(index: Index = INDEX, seed: int = 0, **changes) -> Checkpoint:
    torch.manual_seed(seed)
    config = replace(CONFIG, **changes)
    return Checkpoint(make_model(config, index.codebooks).eval(), index.fingerprint)


def learnt(path, **options) -> dict[str, torch.Tensor]:
    train(HISTORIES, INDEX, path, config=CONFIG, **{"settings": SETTINGS, **options})
    return load_checkpoint(path, INDEX).model.state_dict()


def same(one, other) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_a_model_may_begin_with_what_its_teacher_has(tmp_path):
    teacher = checkpoint(seed=5, architecture="fused-gr")
    still = replace(SETTINGS, learning_rate=1e-12, from_teacher=True)
    begun = learnt(tmp_path / "begun", teacher=teacher, settings=still)
    taught = teacher.model.state_dict()
    assert torch.allclose(begun["fuse_in.weight"], taught["fuse_in.weight"])
    assert torch.allclose(begun["backbone.0.feed_in.weight"], taught["backbone.0.feed_in.weight"])
    alone = learnt(tmp_path / "alone", teacher=teacher, settings=replace(still, from_teacher=False))
    assert not torch.allclose(alone["fuse_in.weight"], taught["fuse_in.weight"])
    assert torch.allclose(begun["decoder.0.feed_in.weight"], taught["backbone.0.feed_in.weight"])
    assert not torch.allclose(begun["decoder.0.feed_in.weight"], alone["decoder.0.feed_in.weight"])


def test_beginning_with_a_teacher_needs_one(tmp_path):
    with pytest.raises(InputError, match="give teacher"):
        learnt(tmp_path, settings=replace(SETTINGS, from_teacher=True))


def test_a_teacher_changes_what_is_learnt_by_its_share(tmp_path):
    teacher = checkpoint(seed=3, architecture="fused-gr")
    save_checkpoint(teacher, tmp_path / "teacher")
    alone = learnt(tmp_path / "alone")
    taught = learnt(tmp_path / "taught", teacher=teacher)
    assert not same(alone, taught)
    assert same(taught, learnt(tmp_path / "again", teacher=tmp_path / "teacher"))
    deaf = learnt(tmp_path / "deaf", teacher=teacher, settings=replace(SETTINGS, teacher_share=0.0))
    assert same(alone, deaf)


def test_a_good_teacher_is_imitated(tmp_path):
    settings = replace(SETTINGS, epochs=40, patience=40, validation_share=0.5)
    config = replace(CONFIG, architecture="fused-gr")
    train(HISTORIES, INDEX, tmp_path / "teacher", config=config, settings=settings)
    settings = replace(settings, teacher_share=1.0)  # it never sees what really came
    report = train(
        HISTORIES, INDEX, tmp_path / "m", config=CONFIG, settings=settings,
        teacher=tmp_path / "teacher",
    )  # fmt: skip
    assert report.validation_loss < 2.0  # a model that knows nothing costs ln 12 = 2.48


def test_a_teacher_that_does_not_fit_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="The teacher was trained on the catalog"):
        learnt(tmp_path / "m", teacher=checkpoint(an_index(1)))
    with pytest.raises(InputError, match="The teacher reads 5 items and the model 6"):
        learnt(tmp_path / "m", teacher=checkpoint(longest=5))
    learnt(tmp_path / "m", teacher=checkpoint(seed=1))
    with pytest.raises(CheckpointError, match="teacher was"):
        learnt(tmp_path / "m", teacher=checkpoint(seed=2), resume=True)


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_every_model_comes_back_from_its_checkpoint(tmp_path, kind):
    saved = checkpoint(architecture=kind[0], pointer=kind[1])
    save_checkpoint(saved, tmp_path / "m")
    found = load_checkpoint(tmp_path / "m", INDEX).model
    assert type(found) is type(saved.model)
    assert found.config == saved.model.config
    assert same(saved.model.state_dict(), found.state_dict())


def aged(path: Path, version: int) -> dict[str, torch.Tensor]:
    """Make a checkpoint one of an earlier version; its weights."""
    with safe_open(path, framework="pt") as file:
        text = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    model = json.loads(text["model"])
    if version == 1:
        for unknown_then in ("architecture", "pointer"):
            del model["config"][unknown_then]
    text |= {"version": str(version), "model": json.dumps(model)}
    del text["checksum"]
    save_file(tensors, path, {**text, "checksum": json.dumps(_checksum(tensors, text))})
    return tensors


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_checkpoints_of_version_2_are_read_but_for_those_that_read_otherwise(tmp_path, kind):
    save_checkpoint(checkpoint(architecture=kind[0], pointer=kind[1]), tmp_path / "m")
    tensors = aged(tmp_path / "m", 2)
    if kind[0] == "flat-gr":
        with pytest.raises(CheckpointError, match=r"a FlatGR of version 2, .*; train it anew"):
            load_checkpoint(tmp_path / "m", INDEX)
    else:
        assert same(load_checkpoint(tmp_path / "m", INDEX).model.state_dict(), tensors)


def test_a_checkpoint_of_version_1_is_read_as_the_deco_that_it_is(tmp_path):
    save_checkpoint(checkpoint(), tmp_path / "m")
    tensors = aged(tmp_path / "m", 1)
    found = load_checkpoint(tmp_path / "m", INDEX).model
    assert found.config == CONFIG
    assert same(found.state_dict(), tensors)


def test_a_deco_that_takes_over_a_backbone_says_of_the_first_level_what_it_said():
    torch.manual_seed(0)
    sizes = ModelConfig(
        width=16, layers=1, heads=2, decoder_width=16, decoder_layers=2, concepts=3, longest=4
    )
    teacher = make_model(replace(sizes, architecture="fused-gr"), (7, 5)).eval()
    norm: Any = teacher.backbone_norm
    with torch.no_grad():  # a norm as training leaves it
        norm.weight.mul_(1.5).add_(0.1 * torch.randn(16))
        norm.bias.add_(0.3 * torch.randn(16))
    model = make_model(sizes, (7, 5)).eval()
    histories = torch.stack([torch.randint(0, size, (6, 4)) for size in (7, 5)], -1)
    rows = torch.arange(6)
    batch = Batch(histories, torch.zeros((6, 2), dtype=torch.int64), rows, torch.full((6,), 4))
    with torch.no_grad():
        wanted = teacher.logits(batch)[0]
        before = model.logits(batch)[0]
        take_over(model, teacher)
        found = model.logits(batch)[0]
    assert (found - wanted).abs().max() < 0.2 * (before - wanted).abs().max()
    assert torch.equal(found.argmax(-1), wanted.argmax(-1))
