"""What a tokenizer reads: item vectors, or histories to learn vectors from; and what it writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from beamsieve.arrow_paths import for_arrow
from beamsieve.catalog.readers.arrays import DAMAGED
from beamsieve.errors import InputError
from beamsieve.models.data import HistoryColumns, read_histories
from beamsieve.models.sequences import Numbered, Sequences, join_rows
from beamsieve.tokenizer.quantise import Tokens
from beamsieve.tokenizer.vectors import interaction_vectors

VECTOR_COLUMNS = ("vector", "embedding")
ITEM_COLUMNS = ("item", "item_id")


@dataclass(frozen=True)
class ItemVectors:
    """Items and their vectors.

    Attributes:
        items: Arrow integers or strings [N].
        vectors: float32 [N, dimensions].
        source: where they are from: "vectors" or "interactions".
    """

    items: pa.Array
    vectors: NDArray[np.float32]
    source: str


def read_vectors(
    path: str | Path,
    *,
    dimensions: int = 64,
    window: int = 5,
    seed: int = 0,
    columns: HistoryColumns | None = None,
) -> ItemVectors:
    """Vectors of a file: given in it, or learnt from the histories in it.

    ``.npy`` holds float [N, dimensions], the items being the row numbers; ``.npz`` the arrays
    ``vectors`` and, if wanted, ``items``; ``.parquet`` a column ``vector`` (or ``embedding``) of
    lists of numbers, and ``item`` (or ``item_id``). Any other file, and a Parquet file without
    such a column, is one of histories (see :mod:`beamsieve.models.data`).

    Args:
        path: the file.
        dimensions, window, seed: of vectors that are learnt.
        columns: of histories.

    Raises:
        InputError: the file cannot be read, or holds neither.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist, or is no file.")
    if path.suffix in (".npy", ".npz"):
        return _from_numpy(path)
    if path.suffix == ".parquet":
        try:
            names = pyarrow.parquet.read_schema(for_arrow(path)).names
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read as parquet: {_first_line(error)}.") from error
        vector = next((name for name in VECTOR_COLUMNS if name in names), None)
        if vector is not None:
            return _from_parquet(path, vector, names)
    return _from_histories(path, dimensions, window, seed, columns)


def write_catalog(path: Path, items: pa.Array, tokens: Tokens) -> None:
    """Write a Parquet catalog: ``item`` and ``sid``, one row per path."""
    flat = pa.array(tokens.sids.ravel())
    sids = pa.FixedSizeListArray.from_arrays(flat, tokens.sids.shape[1]).cast(pa.list_(pa.int64()))
    table = pa.table({"item": items.take(pa.array(tokens.items)), "sid": sids})
    with path.open("wb") as file:
        pyarrow.parquet.write_table(table, file)


def _from_numpy(path: Path) -> ItemVectors:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            vectors, items = loaded, np.arange(len(loaded))
        else:
            with loaded as file:
                vectors = file["vectors"]
                items = file["items"] if "items" in file.files else np.arange(len(vectors))
    except DAMAGED as error:
        raise InputError(f"{path} cannot be read as vectors: {_first_line(error)}.") from error
    return _checked(path, pa.array(items), vectors)


def _from_parquet(path: Path, vector: str, names: list[str]) -> ItemVectors:
    item = next((name for name in ITEM_COLUMNS if name in names), None)
    if item is None:
        raise InputError(f"{path} has no column 'item' (or 'item_id'); it has {', '.join(names)}.")
    try:
        table = pyarrow.parquet.read_table(for_arrow(path), columns=[item, vector])
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as parquet: {_first_line(error)}.") from error
    column = table[vector].combine_chunks()
    if not hasattr(column, "value_lengths"):
        raise InputError(f"{path}: column {vector!r} holds {column.type}, not lists of numbers.")
    lengths = column.value_lengths().unique().to_pylist() if len(column) else []
    if len(lengths) != 1 or not lengths[0]:
        raise InputError(f"{path}: the vectors are of {len(lengths)} lengths; they must have one.")
    flat = column.flatten().to_numpy(zero_copy_only=False)
    return _checked(path, table[item].combine_chunks(), flat.reshape(-1, lengths[0]))


def _checked(path: Path, items: pa.Array, vectors: NDArray[Any]) -> ItemVectors:
    if vectors.ndim != 2 or vectors.dtype.kind not in "fiu" or len(vectors) != len(items):
        raise InputError(
            f"{path}: vectors are {vectors.dtype} {vectors.shape} for {len(items)} items; they "
            "must be numbers [items, dimensions]."
        )
    if items.null_count or len(items.unique()) != len(items):
        raise InputError(f"{path}: an item is null, or has two vectors; give one for each.")
    return ItemVectors(items, vectors.astype(np.float32), "vectors")


def _from_histories(
    path: Path, dimensions: int, window: int, seed: int, columns: HistoryColumns | None
) -> ItemVectors:
    histories = read_histories(path, columns)
    ids = histories.items
    if histories.targets is not None:
        targets = histories.targets
        if targets.type != ids.type:
            try:
                targets = targets.cast(ids.type) if len(ids) else targets
            except pa.ArrowInvalid as error:
                raise InputError(
                    f"{path}: histories hold {ids.type} and targets {targets.type}, which are no "
                    f"ids of the same kind: {error}."
                ) from error
        ids = pa.concat_arrays([ids, targets.drop_null().cast(ids.type)])
    encoded = ids.dictionary_encode()
    numbers = encoded.indices.to_numpy().astype(np.int64)
    read, asked = len(histories.items), np.full(len(histories), -1, np.int64)
    if histories.targets is not None:
        given = histories.targets.is_valid().to_numpy(zero_copy_only=False)
        asked[given] = numbers[read:]
    known = Numbered(Sequences(numbers[:read], histories.starts), asked, 0)
    sequences = join_rows(known, histories.users)
    items = cast("pa.Array", encoded.dictionary)
    vectors = interaction_vectors(
        sequences, len(items), dimensions=dimensions, window=window, seed=seed
    )
    return ItemVectors(items, vectors, "interactions")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
