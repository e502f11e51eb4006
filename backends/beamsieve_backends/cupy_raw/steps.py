"""A step as launches: which kernels, with what grid, planned from shapes and the table alone.

Nothing here waits for the device or looks at what it holds, so the same shapes give the same
launches and a loop of steps can be captured in a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from beamsieve.interface import Beams, Candidates, Normalize, StepInputs
from beamsieve_backends.cupy_raw import arguments, fused, one_beam, tile_products, tiles
from beamsieve_backends.cupy_raw.beams import beam_fields, new_beams, out_fields
from beamsieve_backends.cupy_raw.projection import FullProjection
from beamsieve_backends.cupy_raw.selection import WARPS, capacity_for, chooser_bytes, padded
from beamsieve_backends.cupy_raw.session import Session, Workspace
from beamsieve_backends.cupy_raw.tables import DeviceTable, DeviceTables
from beamsieve_backends.cupy_raw.targeting import DeviceRequests, launch_filter
from beamsieve_backends.cupy_raw.tiles import BLOCKS_AT_ONCE, BUSY_WARPS

FEW_CANDIDATES = 4096
"""Up to about so many candidates per request, score_rows beats score_tiles on logits."""
SAFE_BYTES = 256 << 20
"""Below this, score_rows gets workspace for any rows, not only for different ones."""
BLOCK_BYTES = 1 << 10
"""Shared memory that CUDA keeps of every block."""


@dataclass(frozen=True)
class Shape:
    """B requests, M beams and W places to keep."""

    B: int
    M: int
    W: int


class StepCall:
    """One step of one search: holds what its launches share."""

    def __init__(
        self,
        device: Any,
        table: DeviceTable,
        beams: Beams,
        inputs: StepInputs,
        normalize: Normalize,
    ) -> None:
        self.device = device
        self.table = table
        self.beams = beams
        self.inputs = inputs
        self.normalize: Normalize = normalize
        self.shape = Shape(beams.search.batch, beams.width, inputs.width)
        session: Session = beams.search.device_requests
        self.work: Workspace = session.workspace()
        self.held: list[Any] = []
        address = self._address
        self.fields: dict[str, Any] = {
            **table.fields,
            **beam_fields(device, beams),
            "bias": address(inputs.bias),
            "bias_type": 0
            if inputs.bias is None
            else arguments.NUMBER_TYPES[inputs.bias.dtype.name],
            "bonus": address(inputs.bonus),
            "nudge": address(inputs.nudge),
            "meetings": device.address(self.work.meetings(self.shape.B)),
            "width": self.shape.W,
            "normalize": arguments.NORMALIZERS[normalize],
            "capacity": capacity_for(self.shape.W),
        }
        if session.requests is not None:
            self._filter(session.requests)

    def _filter(self, requests: DeviceRequests) -> None:
        """filter_rows: a bit for each position of each beam."""
        tables: DeviceTables = self.beams.search.tables
        B, M = self.shape.B, self.shape.M
        step = self.beams.step + 1
        words = max(1, -(-self.table.positions // 32))
        bits = self.work.take("eligible", B * M * words, np.uint32)
        per_beam = max(1.0, self.table.mean / 32) if self.table.listed else float(words)
        launch_filter(
            self.device,
            self.fields,
            None if tables.matchers is None else tables.matchers[step - 1],
            requests,
            tables.leaves(step) if requests.uses_sets else None,
            bits,
            (B, M, words),
            M * per_beam,
            self.table.listed,
        )
        self.fields.update(eligible=self.device.address(bits), eligible_words=words)

    def _address(self, array: Any) -> int:
        if array is None:
            return 0
        array = self.device.contiguous(array)
        self.held.append(array)
        return int(self.device.address(array))

    # --- the whole step

    def run(self) -> Beams:
        """The beams after the step."""
        after = new_beams(self.device, self.beams, self.shape.W)
        self.fields.update(out_fields(self.device, after))
        inputs, table = self.inputs, self.table
        if self._fused():
            assert inputs.hidden is not None
            self.projection_fields()
            dtype, batch = str(inputs.hidden.dtype.name), self.shape.B
            fused.launch(self.device, table, self.fields, batch, dtype)
        elif self._tile_products():
            self._products_in_tiles()
        elif one_beam.takes(table, self.shape.M):
            one_beam.launch(self)
        elif inputs.hidden is not None and self.selective():
            self._rows(projected=True, dtype=inputs.hidden.dtype.name)
        else:
            dtype = self.logits()
            few = self.shape.M * table.mean <= FEW_CANDIDATES
            if self.shape.M == 1 or few or self.shape.M * tiles.tiles_of(table) < self.shape.W:
                if self.normalize == "all":
                    self.masses(dtype)
                self._rows(projected=False, dtype=dtype)
            else:
                tiles.launch(self, dtype)
        if self.device.capturing():
            self.work.keep(after, *self.held)
        return after

    def _fused(self) -> bool:
        """Whether the plan wants one launch and the step leaves it possible."""
        wanted = self.inputs.projection == "fused" and not self._tile_products()
        return wanted and fused.takes(self.table, self.shape.M, self.inputs, self.normalize)

    def _tile_products(self) -> bool:
        """Whether a step over the whole codebook keeps its logits to itself."""
        planned = self.inputs.projection == "fused"
        if self.device.tile_products == "always" and (planned or not self.selective()):
            return tile_products.takes(self.device, self.table, self.shape.M, self.inputs)
        return planned and _many_in_tiles(self.device, self.table, self.shape.M, self.inputs)

    def _products_in_tiles(self) -> None:
        """multiply_tiles, key_tiles, reopen_tiles."""
        hidden, head = (self.device.contiguous(x) for x in (self.inputs.hidden, self.inputs.head))
        self.held += [hidden, head]
        self.projection_fields()
        full = self._projection(hidden, head)
        tile_products.launch(
            self.device,
            self.work,
            self.table,
            self.fields,
            self.inputs,
            self.shape.B,
            self.normalize,
            full,
        )

    def selective(self) -> bool:
        """Whether to score the valid tokens only; the plan's word counts where there is one."""
        if self.normalize == "all":
            return False
        if self.inputs.projection in ("full", "selective"):
            return self.inputs.projection == "selective"
        # The batch has no say: it must not change how a request's numbers are rounded.
        return self.shape.M == 1 or self.table.mean * 16 <= self.table.vocabulary

    def _rows(self, *, projected: bool, dtype: str) -> None:
        """score_rows: every candidate once, shared evenly by all warps of a request."""
        B, M = self.shape.B, self.shape.M
        table = self.table
        bound = M * max(1, table.widest)  # a finished beam is a candidate too
        if B * bound * 12 > SAFE_BYTES:
            bound = int(table.most[min(M, len(table.most) - 1)])
        expected = max(1.0, min(bound, M * table.mean))
        most_blocks = max(1, self.device.multiprocessors * BLOCKS_AT_ONCE // B)
        per_block = BUSY_WARPS * (4 if projected else 32)
        blocks = max(1, min(most_blocks, int(-(-expected // per_block))))
        shared = chooser_bytes(self.fields["capacity"]) + padded(4 * (M + 1)) + 2 * padded(8 * M)
        # As much as leaves room for the other blocks of a multiprocessor, where they fit at all.
        limit = (self.device.shared_bytes + BLOCK_BYTES) // BLOCKS_AT_ONCE - BLOCK_BYTES
        room = ((limit if shared < limit else self.device.shared_bytes) - shared) // 32 * 4
        staged = max(0, min(bound, 8192, room)) if expected <= 8192 else 0
        self.fields.update(
            scratch=self.device.address(self.work.take("scratch", B * bound * 3, np.float32)),
            scratch_stride=bound,
            staged=staged,
        )
        if projected:
            self.projection_fields()
        shared += 2 * padded(4 * staged)
        self.device.launch(
            "score_rows",
            (blocks, B),
            shared,
            arguments.structure(arguments.STEP, **self.fields),
            arguments.CUDA_TYPES[dtype],
            "true" if projected else "false",
        )

    def projection_fields(self) -> None:
        """Where hidden states and head are, for kernels that multiply by themselves."""
        hidden, head = self.inputs.hidden, self.inputs.head
        assert hidden is not None
        self.fields.update(hidden=self._address(hidden), head=self._address(head))
        size = int(hidden.shape[-1])
        aligned = (
            size % 8 == 0 and self.fields["hidden"] % 16 == 0 and self.fields["head"] % 16 == 0
        )
        self.fields.update(hidden_size=size, aligned=int(aligned))

    # --- the first half

    def list_candidates(self) -> Candidates:
        """Every candidate in its slot."""
        B, M, S = self.shape.B, self.shape.M, max(1, self.table.positions)
        dtype = self.logits()
        self.masses(dtype)
        found = Candidates(
            tokens=self.device.empty((B, M, S), np.int32),
            scores=self.device.empty((B, M, S), np.float32),
            rows=self.device.empty((B, M, S), np.int64),
        )
        address = self.device.address
        self.device.launch(
            "list_candidates",
            (-(-S // 512), M, B),
            0,
            arguments.structure(
                arguments.SLOTS_OUT,
                step=arguments.structure(arguments.STEP, **self.fields),
                tokens=address(found.tokens),
                scores=address(found.scores),
                rows=address(found.rows),
                slots=S,
            ),
            arguments.CUDA_TYPES[dtype],
        )
        if self.device.capturing():
            self.work.keep(found, *self.held)
        return found

    # --- logits and denominators

    def logits(self) -> str:
        """Makes sure that there are logits, and returns their dtype."""
        inputs = self.inputs
        if inputs.logits is not None:
            self.fields["logits"] = self._address(inputs.logits)
            return str(inputs.logits.dtype.name)
        hidden, head = (self.device.contiguous(each) for each in (inputs.hidden, inputs.head))
        self.held += [hidden, head]
        self.fields.update(self._projection(hidden, head).launch())
        return "float32"

    def _projection(self, hidden: Any, head: Any) -> FullProjection:
        rows, prepared = self.shape.B * self.shape.M, self.inputs.prepared
        self.held.append(prepared)
        vocabulary = self.table.vocabulary
        return FullProjection(self.device, self.work, hidden, head, rows, vocabulary, prepared)

    def masses(self, dtype: str) -> None:
        """Each beam's denominator, ahead of its candidates."""
        B, M = self.shape.B, self.shape.M
        masses = self.device.address(self.work.take("masses", 2 * B * M, np.float32))
        self.fields["masses"] = masses
        self.device.launch(
            "row_mass",
            (M, B),
            2 * padded(4 * WARPS),
            arguments.structure(arguments.STEP, **self.fields),
            arguments.CUDA_TYPES[dtype],
        )
        self.fields["mass"] = masses


def takes_fused(
    device: Any, table: DeviceTable, beams: int, inputs: StepInputs, normalize: Normalize
) -> bool:
    """Whether a plan's "fused" changes anything for a step of so many beams per request."""
    return _many_in_tiles(device, table, beams, inputs) or fused.takes(
        table, beams, inputs, normalize
    )


def _many_in_tiles(device: Any, table: DeviceTable, beams: int, inputs: StepInputs) -> bool:
    """Whether multiply_tiles takes a step for which a plan says "fused": not for few candidates."""
    if device.tile_products == "never" or beams * table.mean <= FEW_CANDIDATES:
        return False
    return tile_products.takes(device, table, beams, inputs)
