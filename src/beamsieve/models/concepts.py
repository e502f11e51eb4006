"""Concepts on disk: safetensors or Parquet, by the ending of the file's name.

Both hold the fingerprint of the model's weights and of the catalog, and are refused with others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from torch import Tensor

from beamsieve.arrow_paths import for_arrow
from beamsieve.aside import written_aside
from beamsieve.errors import CheckpointError
from beamsieve.models.checkpoint import UNFIT, are_ids, first_line, read_tensors, write_tensors
from beamsieve.models.data import Item
from beamsieve.models.generator import Reading
from beamsieve.models.pointer import Copying

if TYPE_CHECKING:
    from beamsieve.models.deco import Deco

FORMAT = "beamsieve-concepts"
VERSION = 1

_NUMBERS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_INTEGERS = (torch.int32, torch.int64)


@dataclass(frozen=True)
class Concepts:
    """What a model thinks of users.

    Attributes:
        reading: of N histories, on the host.
        users: their ids [N], where they are known.
        model: fingerprint of the model's weights.
        catalog: fingerprint of the index that it read with.
    """

    reading: Reading
    users: Sequence[Item] | None
    model: str
    catalog: str

    def __len__(self) -> int:
        return len(self.reading)

    @property
    def bytes_per_user(self) -> int:
        """Of the tensors."""
        return sum(t.nbytes for t in self.reading.tensors()) // max(1, len(self))


def save_concepts(concepts: Concepts, path: str | Path) -> None:
    """Write concepts: Parquet where the name ends in ``.parquet``, else safetensors.

    Raises:
        CheckpointError: the file cannot be written.
    """
    path = Path(path)
    tensors = named_tensors(concepts.reading)
    about = {"model": concepts.model, "catalog": concepts.catalog}
    if path.suffix != ".parquet":
        users = None if concepts.users is None else list(concepts.users)
        metadata = {"format": FORMAT, "version": VERSION, **about, "users": users}
        write_tensors(path, tensors, metadata)
        return
    shapes = {name: list(tensor.shape[1:]) for name, tensor in tensors.items()}
    columns = {} if concepts.users is None else {"user": pa.array(concepts.users)}
    for name, tensor in tensors.items():
        flat = pa.array(tensor.reshape(-1).numpy())
        columns[name] = pa.FixedSizeListArray.from_arrays(flat, max(1, tensor[0].numel()))
    text = {"format": FORMAT, "version": VERSION, "shapes": shapes, **about}
    table = pa.table(columns).replace_schema_metadata({FORMAT: json.dumps(text)})
    try:
        with written_aside(path) as aside, aside.open("wb") as file:
            pyarrow.parquet.write_table(table, file)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error}.") from error


def load_concepts(path: str | Path) -> Concepts:
    """Read concepts.

    Raises:
        CheckpointError: the file is absent, damaged, of another kind or a newer version.
    """
    path = Path(path)
    try:
        if path.suffix == ".parquet":
            tensors, metadata = _read_parquet(path)
        else:
            tensors, metadata = read_tensors(path, FORMAT, VERSION)
        _check(tensors, metadata)
        users, model, catalog = (metadata[name] for name in ("users", "model", "catalog"))
        return Concepts(reading_of(tensors), users, model, catalog)
    except CheckpointError:
        raise
    except (pa.ArrowException, OSError, *UNFIT) as error:
        raise CheckpointError(
            f"{path} holds no concepts, or is damaged: {first_line(error)}."
        ) from error


def _read_parquet(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What ``read_tensors`` gives of a safetensors file."""
    table = pyarrow.parquet.read_table(for_arrow(path))
    described = (table.schema.metadata or {}).get(FORMAT.encode())
    if described is None:
        raise CheckpointError(f"{path} holds no concepts; `beamsieve concepts` makes such files.")
    metadata = json.loads(described)
    if metadata["version"] > VERSION:
        raise CheckpointError(
            f"{path} has version {metadata['version']}, this library reads up to {VERSION}; "
            "install a newer one."
        )
    if type(metadata["version"]) is not int or metadata["version"] < 1:
        raise ValueError(f"there is no version {metadata['version']!r}")
    tensors = {}
    for name, shape in metadata["shapes"].items():
        flat = table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        tensors[name] = torch.from_numpy(np.array(flat)).reshape(len(table), *shape)
    users = table["user"].to_pylist() if "user" in table.column_names else None
    return tensors, {**metadata, "users": users}


def _check(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Refuse what is not one matrix of concepts per history, with what belongs to it.

    Raises:
        KeyError, ValueError: what is missing, or does not fit.
    """
    count, users = len(tensors["concepts"]), metadata["users"]
    kinds = {"concepts": 3, "gate": 1, "weights": 2, "sids": 3}  # dimensions of each
    if set(tensors) not in ({"concepts"}, set(kinds)):
        raise ValueError(f"it holds {', '.join(sorted(tensors))}")
    for name, tensor in tensors.items():
        if tensor.ndim != kinds[name] or len(tensor) != count:
            raise ValueError(f"its {name} are {list(tensor.shape)} for {count} histories")
        if tensor.dtype not in (_INTEGERS if name == "sids" else _NUMBERS):
            raise ValueError(f"its {name} are {tensor.dtype}")
    if "sids" in tensors and tensors["sids"].shape[:2] != tensors["weights"].shape:
        raise ValueError("its weights do not fit its semantic IDs")
    known = None if users is None else [user for user in users if user is not None]
    if users is not None and not (are_ids(known) and len(users) == count):
        raise ValueError("its users are not one id per history")
    for name in ("model", "catalog"):
        if not isinstance(metadata[name], str):
            raise ValueError(f"the fingerprint of its {name} is no text")


def named_tensors(reading: Reading) -> dict[str, Tensor]:
    """A reading's tensors by the names that they have in a file."""
    assert reading.concepts is not None
    named = {"concepts": reading.concepts}
    if reading.copying is not None:
        copied = reading.copying
        named |= {"gate": copied.gate, "weights": copied.weights, "sids": copied.sids.int()}
    return named


def reading_of(tensors: Mapping[str, Tensor]) -> Reading:
    """The reverse of :func:`named_tensors`."""
    copying = None
    if "gate" in tensors:
        copying = Copying(tensors["gate"], tensors["weights"], tensors["sids"])
    return Reading(concepts=tensors["concepts"], copying=copying)


def refuse_unfit(concepts: Concepts, model: Deco, name: str) -> None:
    """Refuse concepts that this model cannot spell: their sizes, or the codes to copy.

    Raises:
        CheckpointError: which.
    """
    found, config, sizes = concepts.reading.concepts, model.config, torch.tensor(model.codebooks)
    copied = concepts.reading.copying
    fit = found is not None and found.shape[1:] == (config.concepts, config.decoder_width)
    fit = fit and (copied is not None) == config.pointer
    if fit and copied is not None:
        fit = copied.sids.shape[2] == len(sizes) and bool(
            ((copied.sids >= -1) & (copied.sids < sizes)).all()
        )
    if not fit:
        raise CheckpointError(
            f"{name}: the sizes or codes in it are not the model's; it is damaged."
        )
