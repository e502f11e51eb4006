"""The plan: for each step, which projection was measured fastest.

Which of them wins depends on the device, the dtype, the batch, the width and how many tokens may
follow a beam, so ``Engine.warm_up`` measures instead of guessing (ZeroGR, hybrid projection
selection). The plan stays fixed until the next plan or index: projections may round differently,
and a request's result must not change from one call to the next. For the same reason a plan holds
for any batch size, whatever the one that it was measured with.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from beamsieve.aside import written_aside
from beamsieve.checks import dtype_name
from beamsieve.errors import InputError
from beamsieve.interface import Backend, Beams, Projection, StepInputs

if TYPE_CHECKING:
    from beamsieve.index import Index

_FORMAT = 1
_DTYPES = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Plan:
    """What ``warm_up`` measured, and what follows from it.

    Attributes:
        backend: the backend's name.
        device: its device.
        device_name: the processor's or graphics card's own name.
        fingerprint: of the index.
        normalize: the engine's normalizer.
        dtype: of hidden states and heads.
        hidden_size: d.
        batch: how many requests it was measured with.
        start: how many tokens a prefix gave, 0 without one.
        widths: the width of each step.
        steps: for each step, the fastest projection.
        milliseconds: for each step, the median time of each projection that was tried.
    """

    backend: str
    device: str
    device_name: str
    fingerprint: str
    normalize: str
    dtype: str
    hidden_size: int
    batch: int
    start: int
    widths: tuple[int, ...]
    steps: tuple[Projection, ...]
    milliseconds: tuple[dict[str, float], ...]

    def save(self, path: str | Path) -> None:
        """Write it as JSON; never leaves half a file under that name.

        Raises:
            InputError: the file cannot be written.
        """
        text = json.dumps({"format": _FORMAT, **asdict(self)}, indent=2) + "\n"
        try:
            with written_aside(Path(path)) as aside:
                aside.write_text(text)
        except (OSError, TypeError, ValueError) as error:
            raise InputError(
                f"{path}: the plan cannot be written ({error}); name a file."
            ) from error

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read what ``save`` wrote.

        Raises:
            InputError: the file is no plan, or of another format.
        """
        try:
            values = json.loads(Path(path).read_text())
            if values.pop("format") != _FORMAT:
                raise ValueError("another format")
            plan = cls(**_with_tuples(values))
            if not (len(plan.widths) == len(plan.steps) == len(plan.milliseconds)):
                raise ValueError("lists of unequal length")
            plan._check()
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(
                f"{path} is no plan that this version reads ({error}); run warm_up and save again."
            ) from error
        return plan

    def _check(self) -> None:
        """Refuse what no ``warm_up`` measured, which steps would pass over without a word.

        Raises:
            ValueError: what it is.
            TypeError: likewise.
        """
        if not all(isinstance(one, tuple) for one in (self.widths, self.steps, self.milliseconds)):
            raise ValueError("widths, steps or milliseconds that are no list")
        if not set(self.steps) <= set(get_args(Projection)):
            raise ValueError("an unknown projection")
        sizes = (self.hidden_size, self.batch, self.start, *self.widths)
        if not all(type(number) is int for number in sizes):
            raise ValueError("a size that is no whole number")
        if min(self.start + 1, self.hidden_size, self.batch, *self.widths) < 1:
            raise ValueError("a size that is too small")
        if self.dtype not in _DTYPES:
            raise ValueError(f"an unknown dtype, {self.dtype!r}")
        for times in self.milliseconds:
            if not (isinstance(times, dict) and set(times) <= set(get_args(Projection))):
                raise ValueError("milliseconds that are not of projections")
            if not all(type(time) in (int, float) for time in times.values()):
                raise ValueError("a time that is no number")

    def misfit(
        self, backend: str, device: str, device_name: str, fingerprint: str, normalize: str
    ) -> str | None:
        """Why this plan does not hold there, in a sentence; None if it does."""
        for what, mine, other in (
            ("backend", self.backend, backend),
            ("device", self.device, device),
            ("processor", self.device_name, device_name),
            ("index", self.fingerprint, fingerprint),
            ("normalizer", self.normalize, normalize),
        ):
            if mine != other:
                return (
                    f"This plan was measured for the {what} {mine}, not {other}; run warm_up again."
                )
        return None

    def projection(
        self, step: int, beams: int, width: int, hidden_size: int, dtype: str
    ) -> Projection | None:
        """What to do in the step that takes ``step`` tokens further; None for another shape."""
        at = step - self.start
        if not 0 <= at < len(self.steps) or (self.hidden_size, self.dtype) != (hidden_size, dtype):
            return None
        before = self.widths[at - 1] if at else 1
        return self.steps[at] if (before, self.widths[at]) == (beams, width) else None


def planned(beams: Beams, inputs: StepInputs) -> Projection | None:
    """What the search's plan says of this step; None without one.

    The engine's own plan may be a newer one: a search ends on what it began on.
    """
    plan, hidden = beams.search.plan, inputs.hidden
    if plan is None or hidden is None:
        return None
    return plan.projection(
        beams.step, beams.width, inputs.width, int(hidden.shape[2]), dtype_name(hidden)
    )


def refuse_misfit(plan: Plan, backend: Backend, index: Index, normalize: str) -> None:
    """Refuse a plan that was measured for something else.

    Raises:
        InputError: for what.
    """
    misfit = plan.misfit(
        backend.name, backend.device, backend.device_name, index.fingerprint, normalize
    )
    if misfit:
        raise InputError(misfit)
    unable = set(plan.steps) - set(backend.capabilities.projections)
    if unable:
        projection = unable.pop()
        bring = backend.missing_projections().get(projection)
        raise InputError(
            f"The plan asks for the {projection} projection, which the backend "
            f"{backend.name!r} lacks{' here' if bring else ''}; "
            + (f"install what it needs with {bring}, or run" if bring else "run")
            + " warm_up again."
        )


def _with_tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
