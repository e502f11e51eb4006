"""The backend under test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from _pytest.outcomes import Skipped

from beamsieve.engine import Engine
from beamsieve.errors import BackendError, BeamsieveError
from beamsieve.index import Index
from beamsieve.interface import Backend, Beams, Capabilities, Normalize
from beamsieve.registry import BackendSpec, one_line, open_backend
from beamsieve_conformance import arrays
from beamsieve_conformance.compare import DTYPES, HostBeams
from beamsieve_conformance.oracle import Inputs


class NotDeclared(Skipped):
    """A test turned out to need more than the backend declares; it does not apply."""


@dataclass(frozen=True)
class Subject:
    """A backend, opened once on one device.

    Attributes:
        config: the config string that opened it, device included.
        name: its name in the registry.
        backend: the open backend, used to read its arrays.
    """

    config: str
    name: str
    backend: Backend

    @classmethod
    def open(cls, config: str, device: str | None = None) -> Subject:
        """Open a backend by its config string, on ``device`` where one is given.

        Raises:
            BackendError: no such backend, its import fails, it has not that device, or it declares
                nothing, or ends while it is asked.
        """
        wanted = BackendSpec.parse(config)
        if device is not None:
            wanted = replace(wanted, device=device)
        backend, opened = open_backend(str(wanted))
        try:
            declared: object = backend.capabilities
        except (KeyboardInterrupt, BeamsieveError):
            raise
        except BaseException as error:  # SystemExit, too: it would end the run as if all were well
            raise BackendError(
                f"The backend {opened.name!r} cannot say what it can do: {one_line(error)}."
            ) from error
        if not isinstance(declared, Capabilities):
            kind = type(declared).__name__
            raise BackendError(
                f"The backend {opened.name!r} has capabilities of type {kind}, not Capabilities."
            )
        return cls(str(opened), opened.name, backend)

    @property
    def device(self) -> str:
        """Where it computes: "cpu", "cuda:0", …"""
        return self.backend.device

    @property
    def capabilities(self) -> Capabilities:
        """What it declares on this device."""
        return self.backend.capabilities

    @property
    def package(self) -> str:
        """The module of its class."""
        return type(self.backend).__module__

    @property
    def kernel_sources(self) -> tuple[str, ...]:
        """Its device code, relative to its top package."""
        return self.backend.kernel_sources

    def require(self, *, width: int = 0, codebook: int = 0) -> None:
        """Leave the test where it needs a wider step or a larger codebook than is declared."""
        for name, needed, limit in (
            ("width", width, self.capabilities.largest_width),
            ("codebook", codebook, self.capabilities.largest_codebook),
        ):
            if limit is not None and needed > limit:
                raise NotDeclared(f"{name} above {limit}")

    def engine(self, index: Index, normalize: Normalize = "catalog") -> Engine:
        """An engine of this backend."""
        return Engine(index, backend=self.backend, normalize=normalize)

    def put(self, values: Any, dtype: str = "float32") -> Any:
        """Numbers as an array of ``dtype`` on the backend's device."""
        return arrays.put(values, dtype, self.device)

    def arguments(self, inputs: Inputs) -> dict[str, Any]:
        """``inputs`` as the arguments of ``engine.step`` and ``engine.candidates``."""
        given: dict[str, Any] = {}
        for name in ("logits", "hidden", "head", "bias"):
            value = getattr(inputs, name)
            if value is not None:
                given[name] = self.put(value, inputs.dtype)
        for name in ("bonus", "nudge"):
            value = getattr(inputs, name)
            if value is not None:
                given[name] = self.put(value)
        return given

    def host(self, beams: Beams) -> HostBeams:
        """The beams as NumPy arrays of their own memory."""
        copies = {name: np.array(self.backend.to_host(getattr(beams, name))) for name in DTYPES}
        return HostBeams(step=beams.step, **copies)
