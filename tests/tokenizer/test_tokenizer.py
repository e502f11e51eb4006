"""From vectors or interactions to semantic IDs: what near items share, and what the report says."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from beamsieve.catalog import Catalog
from beamsieve.cli import app
from beamsieve.errors import InputError
from beamsieve.index import Index
from beamsieve.models.sequences import Sequences
from beamsieve.tokenizer import interaction_vectors, report_of, residual_kmeans
from beamsieve.tokenizer.read import read_vectors


def clusters(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """400 points: four coarse clusters, each of four fine ones."""
    rng = np.random.default_rng(seed)
    coarse, fine = np.repeat(np.arange(4), 100), np.tile(np.repeat(np.arange(4), 25), 4)
    centres = np.array([[0, 0], [9, 0], [0, 9], [9, 9]], np.float32)
    points = centres[coarse] + centres[fine] / 9 + rng.normal(0, 0.02, (400, 2))
    return points.astype(np.float32), coarse, fine


def same_partition(codes: np.ndarray, wanted: np.ndarray) -> bool:
    return len(set(zip(codes.tolist(), wanted.tolist(), strict=True))) == len(set(wanted.tolist()))


def test_clusters_are_spelled_level_by_level():
    points, coarse, fine = clusters()
    tokens = residual_kmeans(points, (4, 4))
    assert same_partition(tokens.sids[:, 0], coarse)
    assert same_partition(tokens.sids[:, 0] * 4 + tokens.sids[:, 1], coarse * 4 + fine)
    assert tokens.errors[0] > tokens.errors[1] > 0
    assert tokens.errors[1] < 1e-3


def test_a_seed_gives_one_answer():
    points, _, _ = clusters()
    first, again, other = (residual_kmeans(points, (8, 8), seed) for seed in (1, 1, 2))
    assert np.array_equal(first.sids, again.sids)
    assert not np.array_equal(first.sids, other.sids)


def test_a_collision_level_parts_what_shares_a_semantic_id():
    points, _, _ = clusters()
    shared = residual_kmeans(points, (4, 4))
    assert shared.collisions == 400
    parted = residual_kmeans(points, (4, 4), collision_level=True)
    assert parted.codebooks == (4, 4, 25)
    assert np.array_equal(parted.sids[:, :2], shared.sids)
    assert len(np.unique(parted.sids, axis=0)) == 400
    assert parted.collisions == 400


def test_with_several_paths_an_item_stands_under_its_nearest_first_codes():
    points, _, _ = clusters()
    tokens = residual_kmeans(points, (4, 4), paths=2)
    assert tokens.items.tolist() == np.repeat(np.arange(400), 2).tolist()
    firsts = tokens.sids[::2]
    assert np.array_equal(firsts, residual_kmeans(points, (4, 4)).sids)
    centres = np.stack([points[firsts[:, 0] == code].mean(0) for code in range(4)])
    second = np.argsort(((points[:, None] - centres) ** 2).sum(-1), axis=1)[:, 1]
    assert np.array_equal(tokens.sids[1::2, 0], second)
    index = Index.build(Catalog.from_arrays(tokens.sids, items=tokens.items, codebooks=4))
    assert len(index.items) == 400


def test_fewer_distinct_vectors_than_codes_use_fewer_codes():
    tokens = residual_kmeans(np.array([[0.0], [0.0], [5.0]]), (8, 8))
    assert len(set(tokens.sids[:, 0].tolist())) == 2
    assert tokens.sids[:, 1].tolist() == [0, 0, 0]
    assert tokens.errors == (0.0, 0.0)


def test_the_report_counts():
    points, _, _ = clusters()
    found = report_of(residual_kmeans(points, (4, 8), collision_level=True))
    assert (found["items"], found["paths"], found["semantic_ids"]) == (400, 400, 400)
    assert found["codes_used"][0] == 4
    assert found["entropy_bits"][0] == pytest.approx(2)
    assert found["most_entropy_bits"][:2] == [2, 3]
    assert len(found["reconstruction_error"]) == 2


@pytest.mark.parametrize(
    ("vectors", "options", "said"),
    [
        (np.zeros((0, 2)), {}, "shape"),
        (np.zeros(3), {}, "shape"),
        (np.array([[0.0], [np.nan]]), {}, "row 1 holds a value"),
        (np.zeros((2, 2)), {"codebooks": ()}, "at least one level"),
        (np.zeros((2, 2)), {"codebooks": (0,)}, "at least one level"),
        (np.zeros((2, 2)), {"paths": 5}, "paths is 5"),
        (np.full((4, 2), 1e38, np.float32), {"codebooks": [2]}, "scale the vectors down"),
    ],
)
def test_what_cannot_be_tokenized_is_refused(vectors, options, said):
    with pytest.raises(InputError, match=said):
        residual_kmeans(vectors, options.pop("codebooks", (4,)), **options)


def test_faiss_is_refused_by_name_where_it_is_absent():
    try:
        import faiss  # noqa: F401
    except ImportError:
        with pytest.raises(InputError, match="pip install faiss-cpu"):
            residual_kmeans(np.eye(4), (2,), clustering="faiss")
    else:
        assert residual_kmeans(np.eye(4), (2,), clustering="faiss").sids.shape == (4, 1)


def two_worlds() -> Sequences:
    """Items 0 … 9 are only ever had with each other, and so are 10 … 19; nobody has 20."""
    rng = np.random.default_rng(0)
    return Sequences.of([rng.permutation(10) + 10 * (n % 2) for n in range(60)])


def test_items_that_come_near_each_other_lie_near_each_other():
    vectors = interaction_vectors(two_worlds(), 21, dimensions=4)
    assert vectors.shape == (21, 4)
    alike = vectors @ vectors.T
    assert alike[:10, :10].mean() > alike[:10, 10:20].mean() + 0.5
    assert not vectors[20].any()
    codes = residual_kmeans(vectors[:20], (2,)).sids[:, 0]
    assert same_partition(codes, np.repeat([0, 1], 10))


def test_nothing_near_anything_is_refused():
    with pytest.raises(InputError, match="No two items"):
        interaction_vectors(Sequences.of([np.array([3]), np.array([3, 3])]), 4)


def test_vectors_are_read_from_numpy_and_parquet(tmp_path):
    points, _, _ = clusters()
    names = [f"i{n}" for n in range(400)]
    np.save(tmp_path / "v.npy", points)
    np.savez(tmp_path / "v.npz", vectors=points, items=np.array(names))
    table = pa.table({"item": names, "vector": [point.tolist() for point in points]})
    pyarrow.parquet.write_table(table, tmp_path / "v.parquet")
    for name, items in (("v.npy", list(range(400))), ("v.npz", names), ("v.parquet", names)):
        found = read_vectors(tmp_path / name)
        assert found.items.to_pylist() == items
        assert np.array_equal(found.vectors, points)
    ragged = pa.table({"item": ["a", "b"], "vector": [[1.0], [1.0, 2.0]]})
    pyarrow.parquet.write_table(ragged, tmp_path / "ragged.parquet")
    with pytest.raises(InputError, match="2 lengths"):
        read_vectors(tmp_path / "ragged.parquet")
    texts = pa.table({"item": ["a", "b"], "vector": ["x", "y"]})
    pyarrow.parquet.write_table(texts, tmp_path / "texts.parquet")
    with pytest.raises(InputError, match="holds string, not lists of numbers"):
        read_vectors(tmp_path / "texts.parquet")
    for name, content in (("b.npy", b"nothing"), ("b.npy", b""), ("b.npz", b"PK\x03\x04junk")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="cannot be read as vectors"):
            read_vectors(tmp_path / name)
    (tmp_path / "h.jsonl").write_text('{"history": [1, 2], "target": "x"}\n')
    with pytest.raises(InputError, match="no ids of the same kind"):
        read_vectors(tmp_path / "h.jsonl")


def test_a_window_of_any_size_ends_where_the_sequences_do():
    whole = interaction_vectors(two_worlds(), 20, dimensions=4, window=9)
    assert np.array_equal(interaction_vectors(two_worlds(), 20, dimensions=4, window=2**63), whole)


def test_the_command_makes_a_catalog_from_histories(tmp_path):
    sequences = two_worlds()
    lines = [
        {"history": [f"i{n}" for n in sequences[row][:-1]], "target": f"i{sequences[row][-1]}"}
        for row in range(len(sequences))
    ]
    (tmp_path / "h.jsonl").write_text("\n".join(map(json.dumps, lines)))
    words = ["tokenize", tmp_path / "h.jsonl", "-o", tmp_path / "items.parquet", "--json"]
    words += ["--codebooks", "2,4", "--collision-level", "--dimensions", "4"]
    outcome = CliRunner().invoke(app, [str(word) for word in words])
    assert outcome.exit_code == 0, outcome.output
    report = json.loads(outcome.stdout)
    assert (report["items"], report["learnt_from"]) == (20, "interactions")
    index = Index.build(Catalog.read(tmp_path / "items.parquet"))
    assert index.leaf_count == len(index.items) == 20
    first = {str(item): sid[0] for sid in index_sids(index) for item in index.items_of(sid)}
    assert len({first[f"i{n}"] for n in range(10)}) == 1
    assert first["i0"] != first["i10"]


def index_sids(index: Index) -> list[list[int]]:
    return [index.sid_of_leaf(leaf).tolist() for leaf in range(index.leaf_count)]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--codebooks", "2,x"], 2),
        (["--codebooks", "0"], 2),
        (["--codebooks", "2147483648"], 2),
        (["--codebooks", "2", "--paths", "3"], 2),
        (["--clustering", "magic"], 2),
    ],
)
def test_bad_arguments_are_refused(tmp_path, words, code):
    np.save(tmp_path / "v.npy", np.eye(4))
    called = ["tokenize", str(tmp_path / "v.npy"), "-o", str(tmp_path / "items.parquet"), *words]
    assert CliRunner().invoke(app, called).exit_code == code
    assert not (tmp_path / "items.parquet").exists()


def test_a_name_of_another_format_is_refused(tmp_path):
    np.save(tmp_path / "v.npy", np.eye(4))
    for name in ("items.csv", "items"):
        called = ["tokenize", str(tmp_path / "v.npy"), "-o", str(tmp_path / name)]
        found = CliRunner().invoke(app, called)
        assert found.exit_code == 2
        assert "ends in .parquet" in " ".join(found.output.replace("│", " ").split())
        assert not (tmp_path / name).exists()
