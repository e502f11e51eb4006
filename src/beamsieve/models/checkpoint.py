"""Checkpoints: a model's weights in safetensors, with what is needed to use them again.

The metadata holds the model's config, the catalog's fingerprint, the most frequent items of the
training (the baseline that metrics show beside the model's), and a checksum of the weights. Files
are written aside and renamed, so a half file never stands under a checkpoint's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from beamsieve.aside import written_aside
from beamsieve.errors import CheckpointError, InputError
from beamsieve.models.data import Item
from beamsieve.models.family import config_of, make_model
from beamsieve.models.model import Model

if TYPE_CHECKING:
    from beamsieve.index import Index

FORMAT = "beamsieve-deco"
"""The first of the family gave all of its files their kind."""
VERSION = 3
"""1 knew Deco alone; such a file is read as one. Before 3 a FlatGR read each code by itself."""

UNFIT = (
    *(KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RuntimeError),
    *(RecursionError, InputError),
)
"""What fields that are missing or of another kind, and tensors of other shapes, raise."""


@dataclass(frozen=True)
class Checkpoint:
    """A trained model and what it was trained on.

    Attributes:
        model: in evaluation mode.
        fingerprint: of the index that it was trained on.
        popular: the items that occur most often in its training, most frequent first.
        training: how it was trained, and how that ended.
    """

    model: Model
    fingerprint: str
    popular: tuple[Item, ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)


def save_checkpoint(checkpoint: Checkpoint, path: str | Path) -> None:
    """Write a checkpoint.

    Raises:
        CheckpointError: the file cannot be written.
    """
    weights = {name: value.detach().cpu() for name, value in checkpoint.model.state_dict().items()}
    write_tensors(
        Path(path),
        weights,
        {
            "format": FORMAT,
            "version": VERSION,
            "model": checkpoint.model.describe(),
            "fingerprint": checkpoint.fingerprint,
            "popular": list(checkpoint.popular),
            "training": dict(checkpoint.training),
        },
    )


def load_checkpoint(
    path: str | Path,
    index: Index | None = None,
    *,
    device: str = "cpu",
    other_catalog: bool = False,
) -> Checkpoint:
    """Read a checkpoint.

    Args:
        path: the file.
        index: what it will be used with; refused if it is not what the model was trained on.
        device: where the model goes.
        other_catalog: accept an index of another catalog whose codebooks have the same sizes: the
            same tokenizer's semantic IDs of newer items, say.

    Raises:
        CheckpointError: the file is absent, damaged, of another kind or newer than this library,
            or does not fit the index.
    """
    path = Path(path)
    weights, metadata = read_tensors(path, FORMAT, VERSION)
    try:
        description = metadata["model"]
        check_version(path, metadata["version"], description)
        model = make_model(config_of(description["config"]), description["codebooks"])
        model.load_state_dict(weights)
        found = Checkpoint(
            model.to(device).eval().requires_grad_(False),
            metadata["fingerprint"],
            tuple(metadata["popular"]),
            dict(metadata["training"]),
        )
        if not isinstance(found.fingerprint, str) or not are_ids(metadata["popular"]):
            raise ValueError("the catalog's fingerprint or its most frequent items are none")
    except CheckpointError:
        raise
    except UNFIT as error:
        raise CheckpointError(
            f"{path}: weights and config do not fit each other: {first_line(error)}."
        ) from error
    if index is not None:
        check_fit(found, index, other_catalog=other_catalog, name=str(path))
    return found


def first_line(error: Exception) -> str:
    """What an error says, in one line without a full stop."""
    said = str(error).strip().partition("\n")[0].rstrip(".:")
    return f"{said} is missing" if isinstance(error, KeyError) else said


def are_ids(values: Any) -> bool:
    """Whether these are a list of item or user ids."""
    return isinstance(values, list) and all(type(one) in (str, int) for one in values)


def check_version(path: Path, version: int, description: Mapping[str, Any]) -> None:
    """Refuse weights whose model, as ``Model.describe`` says it, is read otherwise by now.

    Raises:
        CheckpointError: it is a FlatGR of before version 3.
    """
    if version < 3 and description["config"].get("architecture") == "flat-gr":
        raise CheckpointError(
            f"{path} holds a FlatGR of version {version}, which read each code without those "
            "before it in its item; train it anew."
        )


def check_fit(
    checkpoint: Checkpoint, index: Index, *, other_catalog: bool = False, name: str = "The model"
) -> None:
    """Refuse an index that is not what the model was trained on.

    Raises:
        CheckpointError: its codebooks or its catalog differ.
    """
    if tuple(index.codebooks) != checkpoint.model.codebooks:
        raise CheckpointError(
            f"{name} spells codebooks of {_sizes(checkpoint.model.codebooks)} tokens, the index "
            f"has {_sizes(index.codebooks)}; train a model on this index."
        )
    if not other_catalog and index.fingerprint != checkpoint.fingerprint:
        raise CheckpointError(
            f"{name} was trained on the catalog {checkpoint.fingerprint}, the index holds "
            f"{index.fingerprint}; use the index it was trained with, train again, or say that "
            "another catalog of the same tokenizer is meant (other_catalog)."
        )


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and JSON metadata aside, then under their name.

    Raises:
        CheckpointError: the file cannot be written.
    """
    whole = {name: value.contiguous() for name, value in tensors.items()}
    text = {name: json.dumps(value) for name, value in metadata.items()}
    text["checksum"] = json.dumps(_checksum(whole, text))
    try:
        with written_aside(path) as aside:
            aside.write_bytes(save(whole, text))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be written: {error}.") from error


def read_tensors(path: Path, kind: str, version: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata of a file that ``write_tensors`` made.

    Raises:
        CheckpointError: the file is absent, damaged, of another kind or a newer version.
    """
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist, or is no file.")
    try:
        with safe_open(path, framework="pt") as file:
            text: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = {name: json.loads(value) for name, value in text.items()}
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged, or no safetensors file: {error}.") from error
    if metadata.get("format") != kind:
        raise CheckpointError(f"{path} is no {kind} file.")
    held = metadata.get("version", 0)
    if isinstance(held, int) and held > version:
        raise CheckpointError(
            f"{path} has version {metadata['version']}, this library reads up to {version}; "
            "install a newer one."
        )
    checksum = metadata.pop("checksum", None)
    text.pop("checksum", None)
    if type(held) is not int or checksum != _checksum(tensors, text):
        raise CheckpointError(f"{path} was altered or damaged: its checksum does not fit.")
    if held < 1:
        raise CheckpointError(f"{path} has version {held}; there is none before 1.")
    return tensors, metadata


def _checksum(tensors: Mapping[str, Tensor], text: Mapping[str, str]) -> str:
    digest = xxhash.xxh3_128()
    for name in sorted(text):
        digest.update(f"{name}={text[name]}\n".encode())
    for name in sorted(tensors):
        value = tensors[name].contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def weights_fingerprint(model: Model) -> str:
    """32 hexadecimal digits of a model's weights."""
    weights = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    return _checksum(weights, {})


def _sizes(codebooks: tuple[int, ...]) -> str:
    return " × ".join(str(size) for size in codebooks)
