"""What an engine's searches begin on: an index, a backend that has loaded it, perhaps a plan."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import get_args

from beamsieve import checks
from beamsieve.errors import BackendError, InputError
from beamsieve.graphs import SearchGraphs
from beamsieve.index import Index
from beamsieve.interface import Backend, Capabilities, Normalize
from beamsieve.opening import load
from beamsieve.plan import Plan, refuse_misfit
from beamsieve.registry import open_backend

logger = logging.getLogger("beamsieve")


class Served:
    """The part of :class:`beamsieve.engine.Engine` that opens it, and changes what it serves."""

    def __init__(
        self,
        index: Index,
        backend: str | Backend | None = None,
        normalize: Normalize = "catalog",
        plan: Plan | None = None,
    ) -> None:
        checks.an_index(index)
        if not isinstance(normalize, str) or normalize not in get_args(Normalize):
            raise InputError(
                f"normalize is {normalize!r}; it must be one of {', '.join(get_args(Normalize))}."
            )
        self.normalize: Normalize = normalize
        if isinstance(backend, Backend):
            self._backend, self._name = backend, f"{backend.name}:{backend.device}"
        elif backend is not None and not isinstance(backend, str):
            raise BackendError(
                f"backend is {backend!r}; give a config string such as 'torch:cpu', or an opened "
                f"backend."
            )
        else:
            self._backend, spec = open_backend(
                backend, lambda opened: checks.cannot_serve(opened, index, normalize)
            )
            self._name = str(spec)
        self._changes = threading.Lock()
        self._graphs = SearchGraphs(self._backend)
        self._loaded = load(self._backend, index, normalize)
        if plan is not None:
            self.use_plan(plan)

    @property
    def index(self) -> Index:
        """The index that the next search begins on."""
        return self._loaded.index

    @property
    def plan(self) -> Plan | None:
        """The plan in use, if any."""
        return self._loaded.plan

    @property
    def backend(self) -> str:
        """The config string that opens this engine's backend."""
        return self._name

    @property
    def device(self) -> str:
        """Where it runs: "cpu", "cuda:0", …"""
        return self._backend.device

    @property
    def capabilities(self) -> Capabilities:
        """What the backend can do on this device."""
        return self._backend.capabilities

    def replace(self, index: Index, plan: Plan | None = None) -> None:
        """Go over to another index.

        Searches that have begun end on the index that they began on, and say which
        (``beams.fingerprint``). Both indexes are on the device until the last of those searches is
        dropped, and the old one's memory is freed then. Going back is another ``replace``.

        Args:
            index: the new one.
            plan: what ``warm_up`` measured for it, on another engine of this device. A plan of the
                old index does not fit the new one: without a plan of its own the backend chooses
                for every step, until ``warm_up`` or ``use_plan``; the log says so.

        Raises:
            BackendError: the backend cannot serve the new index, or the device has no room for it
                beside the old one, which stays.
            InputError: no index, or a plan for another device, index or normalizer; the old index
                and its plan stay.
        """
        checks.an_index(index)
        if plan is not None:
            checks.a_plan(plan)
            refuse_misfit(plan, self._backend, index, self.normalize)
        loaded = replace(load(self._backend, index, self.normalize), plan=plan)
        with self._changes:
            if self._loaded.plan is not None and plan is None:
                logger.info("the plan was the old index's; warm_up measures one for the new index")
            self._loaded = loaded
            self._graphs.keep_only(loaded.tables)

    def use_plan(self, plan: Plan) -> None:
        """Follow a plan in the searches that begin from now on.

        Searches that have begun end on the plan that they began on, or on none. Steps of another
        shape than the plan's are left to the backend.

        Raises:
            InputError: no plan, or the plan was measured for another device, index or normalizer.
        """
        checks.a_plan(plan)
        with self._changes:
            loaded = self._loaded
            refuse_misfit(plan, self._backend, loaded.index, self.normalize)
            self._loaded = replace(loaded, plan=plan)
