"""What the GPU stage is measured on: catalogs as device tables, and inputs for every step."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from beamsieve.index.build import make_table
from beamsieve.index.starts import starts_dtype
from beamsieve.index.tables import StepTable
from beamsieve.index.tokens import token_dtype
from beamsieve_bench.catalogs import Workload, skewed_sids

HIDDEN = 256


@dataclass(frozen=True)
class StepCase:
    """One step's inputs on the device: B requests, M beams each, rows drawn uniformly."""

    step: int
    scores: torch.Tensor
    rows: torch.Tensor
    finished: torch.Tensor
    tokens: torch.Tensor
    hidden: torch.Tensor
    head: torch.Tensor
    prepared: Any = None
    """What the backend made of the head, where it did so ahead."""


def step_tables(sids: NDArray[np.int32], codebooks: Sequence[int]) -> tuple[StepTable, ...]:
    """The tables of sorted, distinct semantic IDs of one length, as ``Index.build`` makes them."""
    new = np.zeros(len(sids), np.bool_)
    new[:1] = True
    parents = np.zeros(1, np.int64)
    tables = []
    for step, vocabulary in enumerate(codebooks, 1):
        new[1:] |= sids[1:, step - 1] != sids[:-1, step - 1]
        places = np.flatnonzero(new)
        starts = np.empty(len(parents) + 1, starts_dtype(len(places)))
        starts[:-1] = np.searchsorted(places, parents)
        starts[-1] = len(places)
        tokens = sids[places, step - 1].astype(token_dtype(vocabulary))
        tables.append(make_table(step, vocabulary, starts, tokens, None))
        parents = places
    return tuple(tables)


def tables_of(workload: Workload, kept: Path | None = None) -> tuple[StepTable, ...]:
    """A catalog's tables on the host; from the directory ``kept`` or put there, if it is given."""
    name = "-".join(map(str, workload)) + ".pickle"
    if kept is not None and (kept / name).exists():
        # Written by the line below, on this machine.
        tables: tuple[StepTable, ...] = pickle.loads((kept / name).read_bytes())
        return tables
    tables = step_tables(skewed_sids(workload), [workload.vocabulary] * workload.length)
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        (kept / name).write_bytes(pickle.dumps(tables))
    return tables


def step_case(
    table_rows: int,
    step: int,
    batch: int,
    beams: int,
    vocabulary: int,
    dtype: torch.dtype,
    device: torch.device,
    seed: int = 0,
) -> StepCase:
    """Random inputs of one step: scores descend from 0 to about -4, logits have deviation 1."""
    draw = torch.Generator(device="cpu").manual_seed(seed * 1000 + step)
    places = 1 if step == 1 else beams
    scores = -4.0 * torch.rand((batch, places), generator=draw)
    if step == 1:
        scores.zero_()
    rows = torch.randint(0, table_rows, (batch, places), generator=draw)
    hidden = torch.randn((batch, places, HIDDEN), generator=draw)
    head = torch.randn((vocabulary, HIDDEN), generator=draw) / HIDDEN**0.5
    return StepCase(
        step=step,
        scores=scores.sort(dim=1, descending=True).values.to(device),
        rows=rows.to(device),
        finished=torch.zeros((batch, places), dtype=torch.bool, device=device),
        tokens=torch.zeros((batch, places, step - 1), dtype=torch.int32, device=device),
        hidden=hidden.to(device=device, dtype=dtype),
        head=head.to(device=device, dtype=dtype),
    )
