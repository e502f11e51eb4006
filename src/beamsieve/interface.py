"""What a backend is. Read this file, then ``docs/write-a-backend.md``.

A backend turns an index into tables on its device and does one thing with them: a step of beam
search over valid tokens, exactly as ``beamsieve_spec`` defines it. It checks nothing that the
engine has already checked, never moves to another device, and never answers with less than what
was asked: what it cannot do stands in its :class:`Capabilities`, and the engine refuses it before
the backend is called.

What passes between the two is in :mod:`beamsieve.beams`, and named here, too. The notation is that
of its first lines.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from beamsieve.beams import (
    Array,
    Beams,
    Candidates,
    PreparedHead,
    Projection,
    RequestFilters,
    Search,
    StepInputs,
)
from beamsieve.errors import BackendError

if TYPE_CHECKING:
    from beamsieve.index import Index

__all__ = ["Array", "Backend", "Beams", "Candidates", "Capabilities", "Captured", "Normalize"]
__all__ += ["PreparedHead", "Projection", "RequestFilters", "Search", "StepInputs"]

Normalize = Literal["all", "catalog", "eligible"]


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do on its device; the engine refuses the rest with a sentence.

    ``tolerance`` gives, per dtype of hidden states or logits, how far a score may lie from the
    float64 specification's: ``|difference| <= tolerance * max(1, |score|)`` for each step taken.
    """

    devices: tuple[str, ...] = ("cpu",)
    dtypes: tuple[str, ...] = ("float32",)
    normalizers: tuple[Normalize, ...] = ("all", "catalog", "eligible")
    projections: tuple[Projection, ...] = ("full",)
    targeting: tuple[str, ...] = ()
    """Of "bits", "bloom", "allow", "exclude"."""
    guidance: tuple[str, ...] = ("bonus", "nudge", "candidates")
    """Of "bonus", "nudge" and "candidates" (the step in its two halves)."""
    variable_length: bool = True
    largest_width: int | None = None
    largest_codebook: int | None = None
    tolerance: Mapping[str, float] = field(default_factory=lambda: {"float32": 1e-5})
    deterministic: bool = True
    graph: bool = False
    """Whether the loop can be captured in a CUDA graph: by :meth:`Backend.capture`, and step by
    step in a capture of the caller's own."""


class Captured(ABC):
    """A whole search's loop in one CUDA graph, as :meth:`Backend.capture` returns it."""

    @abstractmethod
    def replay(
        self,
        search: Search,
        tokens: NDArray[np.int32],
        rows: NDArray[np.int64],
        finished: NDArray[np.bool_],
    ) -> Beams:
        """Run the graph for another search of the same shape, on the caller's current stream.

        The arguments are those of :meth:`Backend.begin`. They differ from those of the capture in
        values only: the engine fills up ``search.requests`` so that all its arrays have the same
        shapes (signatures behind ``bloom_count``, leaves behind ``leaf_starts[-1]``, both unread),
        and captures anew where another test is asked. Copy them into the buffers that the graph
        reads, replay, and return copies of what it wrote: the caller's beams must stay what they
        are after the next replay. Their ``search`` is the one given here. Nothing may wait for
        the device, and once replayed nothing may ask the driver for memory. The engine calls it
        from one thread at a time, but perhaps on another stream than the time before.
        """


class Backend(ABC):
    """One way to run the step. Subclass it, and name it in the entry-point group
    ``beamsieve.backends``.

    A backend holds no state of a search: everything is in the ``Beams`` it returns, which stay
    what they are after later steps. It may be used from several threads at once.
    """

    name: ClassVar[str]
    requires: ClassVar[str] = ""
    """The pip line that installs what it needs, shown when its import or its opening fails. Written
    as plain text in the class, it is found even where its module cannot be imported."""
    kernel_sources: ClassVar[tuple[str, ...]] = ()
    """The files whose code runs on the device, relative to the backend's top package
    ("triton_slots/kernels.py"): a record of a run on a real device holds the hash of each."""

    device: str
    """"cpu", "cuda:0", …"""
    device_name: str = ""
    """The processor's or graphics card's own name: a plan measured on another is refused."""

    @abstractmethod
    def __init__(self, device: str | None = None, options: Mapping[str, str] | None = None) -> None:
        """Open ``device`` (the backend's usual one when None).

        Raises:
            BackendError: the device does not exist, or an option is unknown.
        """

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What it can do on this device."""

    @abstractmethod
    def load(self, index: Index) -> Any:
        """Copy the index's tables to the device. Threads share the result: never change it."""

    @abstractmethod
    def begin(
        self,
        search: Search,
        tokens: NDArray[np.int32],
        rows: NDArray[np.int64],
        finished: NDArray[np.bool_],
    ) -> Beams:
        """The beams before the first step: one per request, with score 0.

        Args:
            search: index, tables, batch and the requests' targeting; the backend may put
                ``device_requests`` into a copy of it (``dataclasses.replace``).
            tokens: int32 [B, p], each request's given prefix; p = 0 without one.
            rows: int64 [B], the prefix's row in table p+1, its leaf if finished, -1 where the
                prefix is unknown (that request stays empty).
            finished: bool [B].
        """

    @abstractmethod
    def candidates(self, beams: Beams, inputs: StepInputs, normalize: Normalize) -> Candidates:
        """All candidates of the next step, scored; ``inputs.width`` and ``nudge`` do not matter."""

    @abstractmethod
    def select(self, beams: Beams, candidates: Candidates, width: int, keys: Array | None) -> Beams:
        """Keep the ``width`` best of each request by ``keys`` [B, M, S] (the scores when None)."""

    def step(self, beams: Beams, inputs: StepInputs, normalize: Normalize) -> Beams:
        """Both halves in one: the fast path. This default is right for any backend."""
        found = self.candidates(beams, inputs, normalize)
        keys = None if inputs.nudge is None else self.add_nudge(found, inputs.nudge)
        return self.select(beams, found, inputs.width, keys)

    @abstractmethod
    def add_nudge(self, candidates: Candidates, nudge: Array) -> Array:
        """``scores + nudge[b, m, token]`` for each slot; scores alone where there is no token."""

    @abstractmethod
    def asarray(self, value: Any, *, what: str) -> Array:
        """``value`` (DLPack or the array interface) as an array on this device, without a copy
        where possible.

        Raises:
            InputError: the value is on another device, or no array; ``what`` names it.
        """

    @abstractmethod
    def to_host(self, array: Array) -> NDArray[Any]:
        """The array as NumPy, complete."""

    def prepare_head(self, head: Array) -> Any:
        """What each step would make of this head anew, made once; None where that is nothing.

        Args:
            head: [V, d] of a dtype that the backend takes, as ``asarray`` returns it. Its numbers
                do not change any more.

        Returns:
            what ``StepInputs.prepared`` will be where a step takes this head. It is complete: steps
            on other streams and threads may use it at once. A step gives the same beams with it as
            without.
        """
        return None

    def synchronize(self) -> None:  # noqa: B027 - nothing to wait for on a host
        """Wait for the device (for timing only)."""

    def before_timing(self) -> None:  # noqa: B027 - a host can always time
        """Asked once, before ``warm_up`` begins.

        Raises:
            BackendError: nothing can be timed now, as while a stream is captured.
        """

    def seconds(self, work: Callable[[], object]) -> float:
        """How long one call of ``work``, a step, takes: what ``warm_up`` compares projections by.

        This default is the time on the host's clock between two waits. Where the host takes longer
        to start kernels than they run, override it with the device's own time.
        """
        self.synchronize()
        began = time.perf_counter()
        work()
        self.synchronize()
        return time.perf_counter() - began

    def free_bytes(self) -> int | None:
        """Bytes of the device's memory that new arrays can take, those included that the array
        library keeps for itself; None where that is not known. Asked before every ``load``, which
        is refused where it would leave too few for searches (``opening.SPARE_BYTES``)."""
        return None

    def device_bytes(self, tables: Any) -> int:
        """Bytes that ``load`` put on the device."""
        return 0

    def projections_for(
        self, beams: Beams, inputs: StepInputs, normalize: Normalize
    ) -> tuple[Projection, ...]:
        """Those of its projections that can take this very step: what ``warm_up`` times.

        This default: all, and the full one alone where the normalizer needs every logit anyway.
        Override it where a projection takes some steps and not others; a step that it does not take
        goes as if no plan spoke of it.
        """
        known = self.capabilities.projections
        return ("full",) if normalize == "all" and "full" in known else known

    def missing_projections(self) -> Mapping[Projection, str]:
        """The projections that this backend would have on this device if another package were
        installed, each with the pip line that brings it."""
        return {}

    def first_use(self) -> float | None:
        """Do now what the first search would wait for besides its own work: compile kernels.

        Returns:
            the seconds it took, little where a cache on disk has them; None where there is nothing
            of the kind.
        """
        return None

    def capture(
        self,
        search: Search,
        tokens: NDArray[np.int32],
        rows: NDArray[np.int64],
        finished: NDArray[np.bool_],
        loop: Callable[[Beams], Beams],
    ) -> Captured:
        """Capture a whole search in a CUDA graph, where ``capabilities.graph`` says so.

        Args:
            search: as in ``begin``, as are the next three; they say the shapes.
            tokens: int32 [B, p].
            rows: int64 [B].
            finished: bool [B].
            loop: scores and steps from the beams before the first step to those after the last.
                Call it with beams whose arrays, and whose search's ``device_requests``, are
                buffers of the graph's own: at least once outside of the capture, so that kernels
                are compiled and memory is taken, and once inside.

        Raises:
            BackendError: the loop cannot be captured, as the scorer waits for the device or
                allocates outside of the library's pool; or the backend captures nothing at all.
        """
        raise BackendError(
            f"The backend {self.name!r} on {self.device} cannot capture a search in a CUDA graph; "
            f"leave out graph=True."
        )
