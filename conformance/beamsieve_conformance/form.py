"""A backend's beams on the host, and their form: shapes, dtypes, empty places and order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamsieve_conformance.difference import DifferenceError


@dataclass(frozen=True)
class HostBeams:
    """``beamsieve.interface.Beams`` as NumPy arrays, with the same names, shapes and dtypes."""

    step: int
    tokens: NDArray[np.int32]
    scores: NDArray[np.float32]
    keys: NDArray[np.float32]
    rows: NDArray[np.int64]
    parents: NDArray[np.int64]
    finished: NDArray[np.bool_]
    count: NDArray[np.int64]

    @property
    def batch(self) -> int:
        """B, the number of requests."""
        return len(self.count)

    @property
    def width(self) -> int:
        """M, the number of places per request."""
        return int(self.scores.shape[1])

    def bits(self, request: int | None = None) -> tuple[bytes, ...]:
        """Every output's bytes, of one request or of all: equal exactly when all bits are."""
        pick = slice(None) if request is None else slice(request, request + 1)
        names = ("tokens", "scores", "keys", "rows", "parents", "finished", "count")
        return tuple(np.ascontiguousarray(getattr(self, name)[pick]).tobytes() for name in names)


DTYPES: Mapping[str, Any] = {
    "tokens": np.int32,
    "scores": np.float32,
    "keys": np.float32,
    "rows": np.int64,
    "parents": np.int64,
    "finished": np.bool_,
    "count": np.int64,
}


def hold(
    right: Any, rule: str, message: str, expected: object, got: object, request: int | None = None
) -> None:
    """Raise the difference unless ``right``."""
    if not right:
        raise DifferenceError(rule, message, str(expected), str(got), request)


def check_form(beams: HostBeams, *, step: int, batch: int, width: int) -> None:
    """Shapes and dtypes, and the sentinels of every place without a beam."""
    said = f"beams.step is {beams.step} after {step} tokens"
    hold(beams.step == step, "form", said, f"step {step}", beams.step)
    shapes = {
        "tokens": (batch, width, step),
        "count": (batch,),
        **dict.fromkeys(("scores", "keys", "rows", "parents", "finished"), (batch, width)),
    }
    for name, shape in shapes.items():
        array, dtype = getattr(beams, name), np.dtype(DTYPES[name])
        hold(
            array.shape == shape,
            "form",
            f"beams.{name} has shape {array.shape}, not {shape}",
            f"{name} of shape {shape}",
            array.shape,
        )
        hold(
            array.dtype == dtype,
            "form",
            f"beams.{name} is {array.dtype}, not {dtype}",
            f"{name} of {dtype}",
            array.dtype,
        )
    for b in range(batch):
        _check_places(beams, b, width)


def _check_places(beams: HostBeams, b: int, width: int) -> None:
    real = int(beams.count[b])
    hold(
        0 <= real <= width,
        "count",
        f"request {b}: count {real} in {width} places",
        f"a count from 0 to {width}",
        real,
        b,
    )
    for name, wanted in (
        ("scores", -np.inf),
        ("keys", -np.inf),
        ("rows", -1),
        ("parents", -1),
        ("tokens", -1),
        ("finished", False),
    ):
        found = getattr(beams, name)[b, real:]
        hold(
            (found == wanted).all(),
            "padding",
            f"request {b}: places {real} and after hold no beam, so {name} must be {wanted} "
            f"there, not {found.tolist()}",
            f"{name} of {wanted} from place {real} on",
            found.tolist(),
            b,
        )
    for name in ("scores", "keys"):
        values = getattr(beams, name)[b, :real]
        hold(
            np.isfinite(values).all(),
            "finite",
            f"request {b}: a kept beam's {name} must be finite: {values.tolist()}",
            f"finite {name}",
            values.tolist(),
            b,
        )
    hold(
        (beams.rows[b, :real] >= 0).all(),
        "rows",
        f"request {b}: a kept beam without a row",
        "rows from 0 on",
        beams.rows[b, :real].tolist(),
        b,
    )


def check_order(beams: HostBeams) -> None:
    """Kept beams come by higher key, then lower parent, then lower token, and none comes twice."""
    for b in range(beams.batch):
        real = int(beams.count[b])
        order = [
            (-float(beams.keys[b, m]), int(beams.parents[b, m]), int(beams.tokens[b, m, -1]))
            for m in range(real)
        ]
        for m, (before, after) in enumerate(pairwise(order)):
            if before < after:
                continue
            first, second = (
                f"(key {-key!r}, parent {parent}, token {token})"
                for key, parent, token in (before, after)
            )
            raise DifferenceError(
                "ties" if before[0] == after[0] else "order",
                f"request {b}: place {m} {first} may not stand before place {m + 1} {second}",
                "each beam once" if before == after else f"{second} before {first}",
                f"{first} at place {m}, {second} at place {m + 1}",
                b,
            )
