"""The data sets of the quality benchmark: what is trained on, and what is judged.

Each is read from its published files, or from one compact ``.npz`` that ``pack`` wrote of them, so
that a machine without the files can run the benchmark.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from beamsieve.catalog import Catalog
from beamsieve.errors import InputError
from beamsieve.index import Index
from beamsieve.models.data import Histories, read_histories
from beamsieve.models.sequences import Sequences, join_rows, number
from beamsieve.tokenizer import interaction_vectors, residual_kmeans

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class QualityData:
    """One data set; items are numbers from 0.

    Attributes:
        name: of the data set.
        sids: int64 [items, L].
        codebooks: V_l per level.
        training: what is learnt from, in time order.
        validation_share: of those sequences, how many hold back their last item.
        judged: histories whose next item is to be found.
        targets: int64; that item.
    """

    name: str
    sids: NDArray[np.int64]
    codebooks: tuple[int, ...]
    training: Sequences
    validation_share: float
    judged: Sequences
    targets: NDArray[np.int64]

    def index(self) -> Index:
        """The index of all items."""
        return Index.build(Catalog.from_arrays(self.sids, codebooks=self.codebooks))

    def training_histories(self) -> Histories:
        """For :func:`beamsieve.models.train`."""
        return _histories(self.training, None, f"{self.name}, training")

    def judged_histories(self, most: int | None = None) -> Histories:
        """For :func:`beamsieve.models.recommend`; ``most`` takes that many, evenly spread."""
        rows = np.arange(len(self.targets))
        if most is not None and most < len(rows):
            rows = np.linspace(0, len(rows) - 1, most).astype(np.int64)
        chosen = Sequences.of([self.judged[int(row)] for row in rows])
        return _histories(chosen, self.targets[rows], f"{self.name}, judged")


def load(name: str, folder: Path | None = None) -> QualityData:
    """A data set by name, or the packed one of a path that ends in ``.npz``.

    Args:
        name: one of ``NAMES``, or a path.
        folder: of the published files; ``BEAMSIEVE_DATA`` or ../shared/data when None.

    Raises:
        InputError: there is no such data set, or its files are not there.
    """
    if name.endswith(".npz"):
        return unpack(Path(name))
    if name not in _READERS:
        raise InputError(f"There is no data set {name!r}; there are {', '.join(_READERS)}.")
    folder = folder or Path(os.environ.get("BEAMSIEVE_DATA", ROOT.parent / "shared/data"))
    source, read = _READERS[name]
    if not (folder / source).is_dir():
        raise InputError(f"{folder / source} is not there; say with --folder where the data lie.")
    return read(name, folder / source)


def _beauty(name: str, folder: Path) -> QualityData:
    """Leave-one-out: of each user the last item is judged, the one before validates."""
    codes = json.loads((folder / "Beauty.index.json").read_text())
    sids = np.array([[int(c[3:-1]) for c in codes[str(n)]] for n in range(len(codes))])
    users = json.loads((folder / "Beauty.inter.json").read_text()).values()
    return _leave_one_out(name, sids, (256,) * 4, [np.array(user) for user in users])


def _industrial(name: str, folder: Path) -> QualityData:
    """The published rows: valid is learnt from, test, which is later in time, is judged."""
    stem = "Industrial_and_Scientific"
    codes = json.loads((folder / f"{stem}.index.json").read_text())
    sids = np.array([[int(c[3:-1]) for c in codes[str(n)]] for n in range(len(codes))])
    index = Index.build(Catalog.from_arrays(sids, codebooks=(256,) * 3))
    learnt, judged = (
        number(read_histories(folder / f"{part}.csv.gz"), index) for part in ("valid", "test")
    )
    joined = join_rows(learnt, read_histories(folder / "valid.csv.gz").users)
    ids = np.array(index.items.list(np.arange(len(sids))))  # an index numbers items its own way
    return QualityData(
        name,
        sids,
        (256,) * 3,
        Sequences(ids[joined.items], joined.starts),
        0.1,
        Sequences(ids[judged.histories.items], judged.histories.starts),
        ids[judged.targets],
    )


def _eshop(name: str, folder: Path) -> QualityData:
    """Sessions: those of April to July are learnt from, the last click of August's is judged.

    Semantic IDs are what the items are: category, colour, price, and a number among their likes.
    """
    import pandas as pd

    with zipfile.ZipFile(next(folder.glob("*.zip"))) as archive:
        text = archive.read(archive.namelist()[0])
    clicks = pd.read_csv(io.BytesIO(text), sep=";")
    clicks = clicks.sort_values(["session ID", "order"], kind="stable")
    model, names = pd.factorize(clicks["page 2 (clothing model)"], sort=True)
    looks = clicks.groupby(model)[["page 1 (main category)", "colour", "price"]].first()
    columns = [np.unique(looks[column], return_inverse=True)[1] for column in looks]
    sids = np.stack(columns, 1).astype(np.int64)
    _, groups = np.unique(sids, axis=0, return_inverse=True)
    rank = np.array([int((groups[:n] == groups[n]).sum()) for n in range(len(names))])
    sids = np.column_stack([sids, rank])
    starts = np.flatnonzero(np.diff(clicks["session ID"].to_numpy(), prepend=-1))
    sessions = np.split(model.astype(np.int64), starts[1:])
    august = clicks["month"].to_numpy()[starts] == 8
    training = Sequences.of([s for s, late in zip(sessions, august, strict=True) if not late])
    late = [s for s, late in zip(sessions, august, strict=True) if late and len(s) > 1]
    codebooks = tuple(int(size) + 1 for size in sids.max(0))
    return QualityData(
        name,
        sids,
        codebooks,
        training,
        0.1,
        Sequences.of([session[:-1] for session in late]),
        np.array([session[-1] for session in late]),
    )


def _movies(name: str, folder: Path) -> QualityData:
    """Leave-one-out on users and films of at least five ratings, with semantic IDs of our own.

    The tokenizer sees what the model may: every user's films but the last two.
    """
    rows = [line.split("::") for line in (folder / "ratings.dat").read_text().splitlines()]
    users, films, _, times = np.array(rows, np.int64).T
    while True:
        few_users = np.bincount(users)[users] < 5
        few_films = np.bincount(films)[films] < 5
        keep = ~(few_users | few_films)
        if keep.all():
            break
        users, films, times = users[keep], films[keep], times[keep]
    films = np.unique(films, return_inverse=True)[1].astype(np.int64)
    order = np.lexsort((times, users))
    starts = np.flatnonzero(np.diff(users[order], prepend=-1))
    sequences = np.split(films[order], starts[1:])
    seen = Sequences.of([sequence[:-2] for sequence in sequences])
    vectors = interaction_vectors(seen, int(films.max()) + 1, dimensions=64)
    tokens = residual_kmeans(vectors, (64, 64, 64), collision_level=True)
    return _leave_one_out(name, tokens.sids, tokens.codebooks, sequences)


def _leave_one_out(
    name: str,
    sids: NDArray[np.int64],
    codebooks: tuple[int, ...],
    sequences: list[NDArray[np.int64]],
) -> QualityData:
    before = Sequences.of([sequence[:-1] for sequence in sequences])
    targets = np.array([sequence[-1] for sequence in sequences])
    return QualityData(name, sids, codebooks, before, 1.0, before, targets)


_READERS: dict[str, tuple[str, Callable[[str, Path], QualityData]]] = {
    "letter-beauty": ("letter-beauty", _beauty),
    "minionerec-industrial": ("minionerec-industrial", _industrial),
    "eshop-clothing": ("eshop-clothing-2008", _eshop),
    "movietweetings": ("movietweetings-100k", _movies),
}
NAMES = tuple(_READERS)


def pack(data: QualityData, path: Path) -> None:
    """Write a data set into one compressed file."""
    np.savez_compressed(
        path,
        name=data.name,
        sids=data.sids.astype(np.int16),
        codebooks=data.codebooks,
        validation_share=data.validation_share,
        training=data.training.items.astype(np.int32),
        training_starts=data.training.starts.astype(np.int32),
        judged=data.judged.items.astype(np.int32),
        judged_starts=data.judged.starts.astype(np.int32),
        targets=data.targets.astype(np.int32),
    )


def unpack(path: Path) -> QualityData:
    """Read what ``pack`` wrote.

    Raises:
        InputError: the file is not there, or is another.
    """
    try:
        with np.load(path) as file:
            found = {name: file[name] for name in file.files}
        whole = {
            name: value.astype(np.int64)
            for name, value in found.items()
            if value.dtype.kind == "i" and value.ndim
        }
        return QualityData(
            str(found["name"]),
            whole["sids"],
            tuple(whole["codebooks"].tolist()),
            Sequences(whole["training"], whole["training_starts"]),
            float(found["validation_share"]),
            Sequences(whole["judged"], whole["judged_starts"]),
            whole["targets"],
        )
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a packed data set: {error}.") from error


def _histories(sequences: Sequences, targets: NDArray[np.int64] | None, source: str) -> Histories:
    import pyarrow as pa

    return Histories(
        pa.array(sequences.items),
        sequences.starts,
        None if targets is None else pa.array(targets),
        None,
        source,
    )
