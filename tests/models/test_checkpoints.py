"""Checkpoints come back whole, and foreign, damaged or half-written ones are refused."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from beamsieve.catalog import Catalog
from beamsieve.errors import CheckpointError
from beamsieve.index import Index
from beamsieve.models.checkpoint import (
    FORMAT,
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
    write_tensors,
)
from beamsieve.models.config import ModelConfig
from beamsieve.models.deco import Deco

CONFIG = ModelConfig(width=16, layers=1, heads=2, decoder_width=16, longest=8)
INDEX = Index.build(Catalog.from_arrays([[a, b] for a in range(4) for b in range(6)], codebooks=6))


def a_checkpoint(path: Path, index: Index = INDEX) -> Path:
    torch.manual_seed(0)
    save_checkpoint(
        Checkpoint(Deco(CONFIG, index.codebooks), index.fingerprint, (3, 1), {"epoch": 2}), path
    )
    return path


def test_a_checkpoint_comes_back_whole(tmp_path):
    path = a_checkpoint(tmp_path / "m")
    found = load_checkpoint(path, INDEX)
    torch.manual_seed(0)
    wanted = Deco(CONFIG, INDEX.codebooks).state_dict()
    assert all(torch.equal(found.model.state_dict()[name], wanted[name]) for name in wanted)
    assert found.model.config == CONFIG
    assert (found.popular, found.training) == ((3, 1), {"epoch": 2})
    assert not found.model.training


def test_a_checkpoint_of_another_catalog_is_refused(tmp_path):
    path = a_checkpoint(tmp_path / "m")
    other = Index.build(Catalog.from_arrays([[5, 5]], codebooks=6))
    with pytest.raises(CheckpointError, match=f"{INDEX.fingerprint}.*{other.fingerprint}"):
        load_checkpoint(path, other)
    assert load_checkpoint(path, other, other_catalog=True).fingerprint == INDEX.fingerprint
    wider = Index.build(Catalog.from_arrays([[1, 2]], codebooks=7))
    with pytest.raises(CheckpointError, match=r"spells codebooks of 6 × 6 tokens, .* 7 × 7"):
        load_checkpoint(path, wider, other_catalog=True)


def test_damaged_checkpoints_are_refused(tmp_path):
    path = a_checkpoint(tmp_path / "m")
    whole = path.read_bytes()
    altered = bytearray(whole)
    altered[-5] ^= 1
    for content, said in (
        (b"", "damaged"),
        (whole[:200], "damaged"),
        (whole[:-8], "damaged"),
        (bytes(altered), "altered or damaged"),
        (b"PK\x03\x04 a zip file", "damaged"),
        (whole.replace(b'"checksum"', b'"checksun"'), "altered or damaged"),
    ):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=said):
            load_checkpoint(path, INDEX)
    write_tensors(path, {}, {"format": FORMAT, "version": "2"})
    with pytest.raises(CheckpointError, match="altered or damaged"):
        load_checkpoint(path, INDEX)
    write_tensors(path, {}, {"format": FORMAT, "version": 2, "model": {"config": None}})
    with pytest.raises(CheckpointError, match="weights and config do not fit"):
        load_checkpoint(path, INDEX)
    with pytest.raises(CheckpointError, match="does not exist"):
        load_checkpoint(tmp_path / "none", INDEX)
    with pytest.raises(CheckpointError, match="does not exist"):
        load_checkpoint(tmp_path, INDEX)


def test_other_and_newer_files_are_refused(tmp_path, monkeypatch):
    save_file({"x": torch.zeros(1)}, tmp_path / "other")
    with pytest.raises(CheckpointError, match="no beamsieve-deco file"):
        load_checkpoint(tmp_path / "other")
    monkeypatch.setattr("beamsieve.models.checkpoint.VERSION", 4)
    path = a_checkpoint(tmp_path / "newer")
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="version 4, this library reads up to 3"):
        load_checkpoint(path)


def test_weights_that_do_not_fit_their_config_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(
        Deco, "describe", lambda self: {"config": {"width": 32}, "codebooks": [6, 6]}
    )
    path = a_checkpoint(tmp_path / "m")
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="do not fit each other"):
        load_checkpoint(path)


def test_an_interrupted_write_leaves_the_old_file_and_no_half_one(tmp_path, monkeypatch):
    path = a_checkpoint(tmp_path / "m")
    before = path.read_bytes()

    def dies_half_way(file, content):
        with file.open("wb") as half:
            half.write(content[: len(content) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", dies_half_way)
    with pytest.raises(KeyboardInterrupt):
        a_checkpoint(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_a_checkpoint_may_be_read_by_whom_the_umask_lets(tmp_path):
    before = os.umask(0o022)
    try:
        path = a_checkpoint(tmp_path / "m")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be written"):
        a_checkpoint(tmp_path / "none" / "m")
