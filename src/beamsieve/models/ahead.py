"""Concepts computed ahead: what a Deco thinks of each user, kept, and spelt when it is needed.

A concept has one size whatever the history (M · e numbers; 1 KiB at the published sizes in
float16), so it can be computed when a user's history changes, kept by user, and served by the
light decoder alone. With a pointer, the attention over the history's last items and their
semantic IDs are kept beside it.

:mod:`beamsieve.models.concepts` keeps them in files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation names it

from beamsieve.errors import CheckpointError, InputError
from beamsieve.models.checkpoint import Checkpoint, load_checkpoint, weights_fingerprint
from beamsieve.models.concepts import (
    Concepts,
    load_concepts,
    named_tensors,
    reading_of,
    refuse_unfit,
)
from beamsieve.models.data import Histories, Item, read_histories
from beamsieve.models.deco import Deco
from beamsieve.models.generator import Reading
from beamsieve.models.pointer import Copying
from beamsieve.models.progress import progress_bar
from beamsieve.models.sequences import Unknown, number, say_too_long

if TYPE_CHECKING:
    from beamsieve.index import Index

Precision = Literal["float32", "float16"]


def think_ahead(
    checkpoint: Checkpoint | str | Path,
    index: Index | str | Path,
    histories: Histories | str | Path,
    *,
    device: str = "cpu",
    batch: int = 256,
    precision: Precision = "float32",
    unknown: Unknown = "skip",
    other_catalog: bool = False,
    progress: bool | None = None,
) -> Concepts:
    """Read histories with a Deco's backbone, and keep its concepts.

    Args:
        checkpoint: of a Deco, or its file.
        index: the index that it was trained on, or its file.
        histories: histories, or a file of them (see :mod:`beamsieve.models.data`).
        device: where the backbone runs.
        batch: histories read at once.
        precision: of the concepts kept; with float32 recommendations are what they would be
            without the detour.
        unknown: what to do with an item that the index does not have.
        other_catalog: accept an index of another catalog of the same tokenizer.
        progress: whether to draw a bar on stderr; None draws one where stderr is a terminal.

    Raises:
        InputError: the histories cannot be used, or the model is no Deco.
        CheckpointError: the checkpoint is damaged, or does not fit the index.
    """
    from beamsieve.engine import Engine
    from beamsieve.index import Index
    from beamsieve.models.serving import Recommender

    if batch < 1:
        raise InputError(f"batch is {batch}; give at least 1.")
    if not isinstance(index, Index):
        index = Index.load(index)
    reader = Recommender(checkpoint, Engine(index, f"torch:{device}"), other_catalog=other_catalog)
    model = _deco(reader.checkpoint)
    if not isinstance(histories, Histories):
        histories = read_histories(histories)
    sequences = number(histories, index, unknown).histories
    say_too_long(sequences, model.config.longest, histories.source)
    parts: list[Reading] = []
    with progress_bar(progress) as bar:
        bar.begin("read", len(sequences))
        for start in range(0, len(sequences), batch):
            rows = range(start, min(start + batch, len(sequences)))
            reading = reader.read([sequences[row] for row in rows]).to("cpu")
            parts.append(_padded(reading, model.config.longest))
            bar.advance(by=len(rows))
    users = None if histories.users is None else histories.users.to_pylist()
    return Concepts(
        _joined(parts, getattr(torch, precision)),
        users,
        weights_fingerprint(model),
        index.fingerprint,
    )


def open_concepts(
    concepts: Concepts | str | Path,
    checkpoint: Checkpoint | str | Path,
    index: Index,
    *,
    other_catalog: bool = False,
) -> tuple[Checkpoint, Concepts]:
    """A checkpoint without its backbone, and concepts that its light decoder can spell.

    Raises:
        CheckpointError: the concepts are another model's, or read with another catalog than the
            index holds.
        InputError: the model is no Deco.
    """
    name = "The concepts" if isinstance(concepts, Concepts) else str(concepts)
    if not isinstance(concepts, Concepts):
        concepts = load_concepts(concepts)
    if not isinstance(checkpoint, Checkpoint):
        checkpoint = load_checkpoint(checkpoint, index, other_catalog=other_catalog)
    model = _deco(checkpoint)
    if concepts.model != weights_fingerprint(model):
        raise CheckpointError(f"{name}: these are another model's concepts; compute them again.")
    if concepts.catalog != index.fingerprint and not other_catalog:
        raise CheckpointError(
            f"{name}: read with the catalog {concepts.catalog}, the index holds "
            f"{index.fingerprint}; compute them again, or say that another catalog of the same "
            "tokenizer is meant (other_catalog)."
        )
    refuse_unfit(concepts, model, name)
    light = Checkpoint(model.light(), checkpoint.fingerprint, checkpoint.popular)
    return light, concepts


def _deco(checkpoint: Checkpoint) -> Deco:
    if not isinstance(checkpoint.model, Deco):
        raise InputError(
            "This model spells with its backbone, from all that it has read; concepts are a Deco's."
        )
    return checkpoint.model


def _padded(reading: Reading, longest: int) -> Reading:
    """The same size for every history."""
    copied = reading.copying
    if copied is None:
        return reading
    more = longest - copied.weights.shape[1]
    weights = F.pad(copied.weights, (0, more))
    sids = F.pad(copied.sids, (0, 0, 0, more), value=-1)
    return Reading(concepts=reading.concepts, copying=Copying(copied.gate, weights, sids))


def _joined(parts: Sequence[Reading], dtype: torch.dtype) -> Reading:
    named = [named_tensors(part) for part in parts]
    whole = {name: torch.cat([part[name] for part in named]) for name in named[0]}
    return reading_of({n: t.to(dtype) if t.is_floating_point() else t for n, t in whole.items()})


class ConceptRows:
    """Concepts, as :func:`beamsieve.models.recommend` asks for rows."""

    def __init__(self, concepts: Concepts, device: str, dtype: torch.dtype) -> None:
        self._concepts = concepts
        self._device = device
        self._dtype = dtype

    def __len__(self) -> int:
        return len(self._concepts)

    def read(self, rows: range) -> Reading:
        """What the model thinks of some rows."""

        def cut(tensor: Tensor) -> Tensor:
            piece = tensor[rows.start : rows.stop].to(self._device)
            return piece.to(self._dtype) if piece.is_floating_point() else piece.long()

        return reading_of(
            {name: cut(t) for name, t in named_tensors(self._concepts.reading).items()}
        )

    def user(self, row: int) -> Item | None:
        """The row's user, where it is known."""
        return None if self._concepts.users is None else self._concepts.users[row]

    def target(self, row: int) -> Item | None:
        """Nobody knows what came next."""
        return None
