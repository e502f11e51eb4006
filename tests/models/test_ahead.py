"""Concepts kept: they say what the histories would have said, and are refused where they cannot."""

import json
import logging
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from typer.testing import CliRunner

from beamsieve.catalog import Catalog
from beamsieve.cli import app
from beamsieve.errors import CheckpointError, InputError, RequestError
from beamsieve.index import Index
from beamsieve.models import (
    Checkpoint,
    Histories,
    ModelConfig,
    load_concepts,
    make_model,
    recommend,
    save_checkpoint,
    save_concepts,
    think_ahead,
)
from beamsieve.models.ahead import open_concepts
from beamsieve.models.concepts import FORMAT, Concepts

CONFIG = ModelConfig(width=16, layers=1, heads=2, decoder_width=16, longest=4)
HISTORIES = Histories.from_lists(
    [["i1", "i2"], [], ["i3"] * 9, ["i4", "gone"]], users=["u", "v", "w", "x"]
)
ENDINGS = ("safetensors", "parquet")


def an_index(seed: int = 0) -> Index:
    cells = np.random.default_rng(seed).choice(4 * 4 * 4, 40, replace=False)
    sids = np.stack([cells // 16, cells // 4 % 4, cells % 4], 1)
    return Index.build(Catalog.from_arrays(sids, items=[f"i{n}" for n in range(40)], codebooks=4))


def a_checkpoint(index: Index, seed: int = 0, **sizes) -> Checkpoint:
    torch.manual_seed(seed)
    config = ModelConfig(**{**vars(CONFIG), **sizes})
    model = make_model(config, index.codebooks).eval().requires_grad_(False)
    return Checkpoint(model, index.fingerprint)


INDEX = an_index()


def kept(concepts: Concepts, path: Path) -> Concepts:
    save_concepts(concepts, path)
    return load_concepts(path)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("pointer", [False, True])
def test_kept_concepts_say_what_the_histories_say(tmp_path, ending, pointer):
    checkpoint = a_checkpoint(INDEX, pointer=pointer)
    concepts = think_ahead(checkpoint, INDEX, HISTORIES, batch=3)
    found = kept(concepts, tmp_path / f"c.{ending}")
    assert found.users == ["u", "v", "w", "x"]
    ahead = list(recommend(checkpoint, INDEX, found, k=8, backend="torch:cpu"))
    now = list(recommend(checkpoint, INDEX, HISTORIES, k=8, backend="torch:cpu"))
    assert [row.user for row in ahead] == ["u", "v", "w", "x"]
    for kept_row, row in zip(ahead, now, strict=True):
        assert [hit.item for hit in kept_row.items] == [hit.item for hit in row.items]
        np.testing.assert_allclose(
            [hit.score for hit in kept_row.items], [hit.score for hit in row.items], atol=1e-5
        )


@pytest.mark.parametrize("ending", ENDINGS)
def test_half_the_bytes_say_nearly_the_same(tmp_path, ending):
    checkpoint = a_checkpoint(INDEX)
    whole = think_ahead(checkpoint, INDEX, HISTORIES)
    half = kept(
        think_ahead(checkpoint, INDEX, HISTORIES, precision="float16"), tmp_path / f"c.{ending}"
    )
    assert (whole.bytes_per_user, half.bytes_per_user) == (2 * 16 * 4, 2 * 16 * 2)
    for one, other in zip(
        recommend(checkpoint, INDEX, whole, backend="torch:cpu"),
        recommend(checkpoint, INDEX, half, backend="torch:cpu"),
        strict=True,
    ):
        np.testing.assert_allclose(
            [hit.score for hit in one.items], [hit.score for hit in other.items], atol=0.02
        )


def test_a_concept_has_one_size_whatever_the_history():
    concepts = think_ahead(a_checkpoint(INDEX, pointer=True), INDEX, HISTORIES, batch=1)
    shapes = [tuple(tensor.shape[1:]) for tensor in concepts.reading.tensors()]
    assert shapes == [(2, 16), (), (4,), (4, 3)]


def test_they_are_spelt_without_the_backbone():
    checkpoint = a_checkpoint(INDEX)
    concepts = think_ahead(checkpoint, INDEX, HISTORIES)
    light, _ = open_concepts(concepts, checkpoint, INDEX)
    names = {name.partition(".")[0] for name in light.model.state_dict()}
    assert names == {"prefix_codes", "spelling_positions", "decoder", "decoder_norm", "heads"}
    assert "backbone.0.feed_in.weight" in checkpoint.model.state_dict()


def test_a_long_history_is_cut_and_it_is_said_once(caplog):
    with caplog.at_level(logging.WARNING, "beamsieve"):
        think_ahead(a_checkpoint(INDEX), INDEX, HISTORIES, batch=1)
    assert [r.message for r in caplog.records if "longer than" in r.message] == [
        "histories: 1 histories are longer than the model reads; their most recent 4 items count."
    ]


def test_another_models_or_catalogs_concepts_are_refused():
    checkpoint = a_checkpoint(INDEX)
    concepts = think_ahead(checkpoint, INDEX, HISTORIES)
    with pytest.raises(CheckpointError, match="another model's concepts"):
        recommend(a_checkpoint(INDEX, seed=1), INDEX, concepts)
    other = an_index(1)
    with pytest.raises(CheckpointError, match="read with the catalog"):
        recommend(Checkpoint(checkpoint.model, other.fingerprint), other, concepts)
    rows = recommend(checkpoint, other, concepts, other_catalog=True, backend="torch:cpu")
    assert len(list(rows)) == 4
    with pytest.raises(InputError, match="concepts are a Deco's"):
        think_ahead(a_checkpoint(INDEX, architecture="fused-gr"), INDEX, HISTORIES)
    with pytest.raises(RequestError, match="1 requests for 4"):
        recommend(checkpoint, INDEX, concepts, requests=[None])


@pytest.mark.parametrize("ending", ENDINGS)
def test_damaged_and_other_files_are_refused(tmp_path, ending):
    path = tmp_path / f"c.{ending}"
    with pytest.raises(CheckpointError, match=r"does not exist|holds no concepts"):
        load_concepts(path)
    save_concepts(think_ahead(a_checkpoint(INDEX), INDEX, HISTORIES), path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match="damaged"):
        load_concepts(path)
    pyarrow.parquet.write_table(pyarrow.table({"user": [1]}), tmp_path / "other.parquet")
    with pytest.raises(CheckpointError, match="holds no concepts"):
        load_concepts(tmp_path / "other.parquet")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("version", 9, "version 9, this library reads up to 1; install a newer one.$"),
        ("version", "x", "damaged"),
        ("shapes", 5, "damaged"),
        ("shapes", {"concepts": [3, 3]}, "damaged"),
        ("shapes", {"concepts": [-1]}, "damaged: its concepts are"),
    ],
)
def test_concepts_whose_fields_do_not_fit_are_refused(tmp_path, field, value, said):
    path = tmp_path / "c.parquet"
    save_concepts(think_ahead(a_checkpoint(INDEX), INDEX, HISTORIES), path)
    table = pyarrow.parquet.read_table(path)
    fields = json.loads(table.schema.metadata[FORMAT.encode()]) | {field: value}
    changed = table.replace_schema_metadata({FORMAT: json.dumps(fields)})
    pyarrow.parquet.write_table(changed, path)
    with pytest.raises(CheckpointError, match=said):
        load_concepts(path)


def test_the_commands_keep_and_spell_them(tmp_path):
    INDEX.save(tmp_path / "index")
    save_checkpoint(a_checkpoint(INDEX), tmp_path / "model")
    lines = [{"user": n, "history": [f"i{n}", f"i{n + 1}"]} for n in range(5)]
    (tmp_path / "h.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def run(*words):
        return CliRunner().invoke(app, [str(word) for word in words])

    model, index, ahead = (tmp_path / name for name in ("model", "index", "users.parquet"))
    outcome = run("concepts", model, index, tmp_path / "h.jsonl", "-o", ahead, "--json")
    assert outcome.exit_code == 0, outcome.output
    assert json.loads(outcome.stdout)["bytes_per_history"] == 128
    spelt = run("recommend", model, index, "--concepts", ahead, "--json", "--backend", "torch:cpu")
    read = run("recommend", model, index, tmp_path / "h.jsonl", "--json", "--backend", "torch:cpu")
    assert spelt.exit_code == 0, spelt.output
    names = [
        [[item["item"] for item in json.loads(line)["items"]] for line in said.stdout.splitlines()]
        for said in (spelt, read)
    ]
    assert names[0] == names[1]
    for words in (
        [],
        [tmp_path / "h.jsonl", "--concepts", ahead],
        ["--concepts", ahead, "--metrics"],
        ["--concepts", ahead, "--column", "history=items"],
        ["--concepts", ahead, "--unknown", "refuse"],
    ):
        assert run("recommend", model, index, *words).exit_code == 2
    assert run("recommend", model, index, "--concepts", tmp_path / "h.jsonl").exit_code == 1
