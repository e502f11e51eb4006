"""The main job on real input: a published catalog, and what real users bought next."""

import os
from collections import Counter
from pathlib import Path

import pytest

from beamsieve.catalog import Catalog
from beamsieve.index import Index
from beamsieve.models import (
    Metrics,
    TrainingSettings,
    load_checkpoint,
    read_histories,
    recommend,
    train,
)

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("BEAMSIEVE_DATA", ROOT.parent / "shared/data"), "minionerec-industrial")
NAME = "Industrial_and_Scientific"

pytestmark = [
    pytest.mark.real_data,
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the real data set {DATA}"),
]


@pytest.fixture(scope="module")
def index_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("real") / "industrial.beamsieve"
    catalog = Catalog.read(DATA / f"{NAME}_5_2016-10-2018-11.txt", codebooks=256)
    Index.build(catalog).save(path)
    return path


def test_histories_and_catalog_fit_each_other(index_file):
    index = Index.load(index_file)
    assert len(index.items) == 3686
    for name, rows in (("valid", 4532), ("test", 4533)):
        histories = read_histories(DATA / f"{name}.csv.gz")
        assert len(histories) == rows
        assert histories.targets is not None
        items = {*histories.items.to_pylist()} | {
            int(item) for item in histories.targets.to_pylist()
        }
        assert items <= {int(item) for item in index.items}


def test_a_short_training_beats_the_best_fixed_list(index_file, tmp_path):
    """Some fifteen seconds of one core; ``docs/models.md`` has the longer run.

    The bound is the best that any one list of ten items for everyone could do: the ten most
    frequent targets of the test rows themselves, which nothing that has not seen them can know.
    """
    settings = TrainingSettings(epochs=14, learning_rate=6e-3, threads=1, seed=0)
    path = tmp_path / "model.safetensors"
    report = train(DATA / "valid.csv.gz", index_file, path, settings=settings, progress=False)
    assert report.sequences == 2011
    assert report.unknown_items == 0
    popular = load_checkpoint(path).popular
    metrics = Metrics((5, 10), popular)
    targets: Counter[str] = Counter()
    test = DATA / "test.csv.gz"
    for found in recommend(path, index_file, test, backend="torch:cpu", free_beams=True, batch=128):
        metrics.add(found)
        targets[str(found.target)] += 1
        assert len(found.items) == 10
        assert found.items[0].title
    measured = metrics.result()
    best_fixed = sum(count for _, count in targets.most_common(10)) / targets.total()
    assert measured["rows"] == 4533
    assert measured["popularity_recall_at_10"] <= best_fixed < measured["recall_at_10"]
    assert 0 < measured["ndcg_at_10"] < measured["recall_at_10"]
    assert 0 < measured["illegal_free_share"] < 0.5
