"""Backends by name: ``"torch:cuda:0?tile=32"`` is a name, a device and options.

Backends announce themselves in the entry-point group ``beamsieve.backends``; only the one that is
named gets imported, so an installed but broken or slow one costs nobody else anything. A name
that cannot be served is an error that says what is installed, what is missing, and how to install
it. The one exception is ``"auto"``, whose job is to look for the best that works: it says through
``logging.getLogger("beamsieve")`` what it took, and why not the ones before.
"""

from __future__ import annotations

import difflib
import inspect
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from urllib.parse import parse_qsl, urlencode

from beamsieve.errors import BackendError, BeamsieveError
from beamsieve.interface import Backend
from beamsieve.requirements import needs

GROUP = "beamsieve.backends"
ENVIRONMENT = "BEAMSIEVE_BACKEND"
PREFERENCE = ("cupy", "triton", "torch", "reference")
"""The order in which "auto" tries what is installed: the fastest first."""

logger = logging.getLogger("beamsieve")


@dataclass(frozen=True)
class BackendSpec:
    """A parsed config string, ``name[:device][?option=value&…]``."""

    name: str
    device: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> BackendSpec:
        """Read a config string.

        Raises:
            BackendError: no name, or an option without a value or given twice.

        >>> BackendSpec.parse("torch:cuda:1?tile=32")
        BackendSpec(name='torch', device='cuda:1', options={'tile': '32'})
        """
        head, _, query = text.strip().partition("?")
        name, _, device = head.partition(":")
        form = 'write name[:device][?option=value&…], for example "torch:cpu"'
        if not name:
            raise BackendError(f"The backend {text!r} has no name; {form}.")
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        except ValueError:
            raise BackendError(
                f"The options of the backend {text!r} cannot be read; {form}."
            ) from None
        options = dict(pairs)
        if len(options) < len(pairs):
            raise BackendError(f"The backend {text!r} names an option twice; {form}.")
        return cls(name, device or None, options)

    def __str__(self) -> str:
        device = "" if self.device is None else f":{self.device}"
        options = f"?{urlencode(self.options)}" if self.options else ""
        return f"{self.name}{device}{options}"


@dataclass(frozen=True)
class BackendInfo:
    """What ``beamsieve backends`` shows of one installed backend.

    Attributes:
        name: what a config string calls it.
        target: module and class.
        distribution: the package that brings it, with its version.
        devices: where it can run; known only when it was imported.
        error: why it cannot be used; known only when it was imported.
        install: the pip line for what it is missing, if that is known.
        checked: whether it was imported and opened.
        projections: what its steps may do on its usual device; known only when it was opened.
        missing: the projections that another package would bring there, with the pip line of each.
    """

    name: str
    target: str
    distribution: str
    devices: tuple[str, ...] = ()
    error: str = ""
    install: str = ""
    checked: bool = False
    projections: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)


def installed() -> dict[str, EntryPoint]:
    """The entry points of all installed backends by name; imports none."""
    return {point.name: point for point in entry_points(group=GROUP)}


def open_backend(
    config: str | None = None, refuse: Callable[[Backend], str | None] | None = None
) -> tuple[Backend, BackendSpec]:
    """Import and open the backend that ``config`` names.

    Args:
        config: a config string, "auto", or None for the environment variable BEAMSIEVE_BACKEND,
            and "auto" without one.
        refuse: says why a backend cannot serve (a sentence), or None where it can.

    Returns:
        the backend, and the config string that opens the same one again.

    Raises:
        BackendError: not installed, failed to import, or cannot serve what is asked.
    """
    if config is None:
        config = os.environ.get(ENVIRONMENT) or "auto"
    spec = BackendSpec.parse(config)
    if spec.name == "auto":
        return _open_best(spec, refuse)
    return _open(spec, refuse)


def _open(
    spec: BackendSpec, refuse: Callable[[Backend], str | None] | None
) -> tuple[Backend, BackendSpec]:
    backend = _constructed(spec)
    reason = None if refuse is None else refuse(backend)
    if reason:
        raise BackendError(reason)
    return backend, BackendSpec(spec.name, backend.device, spec.options)


def _constructed(spec: BackendSpec) -> Backend:
    kind = load_class(spec.name)
    try:
        return kind(spec.device, spec.options)
    except BeamsieveError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # what extensions in other languages raise is no Exception
        # Of a class that is not finished, nothing is missing that could be installed.
        missing = "" if inspect.isabstract(kind) else kind.requires
        raise BackendError(
            f"The backend {spec.name!r} cannot be opened: {one_line(error)}."
            + (f" Install what it needs with: {missing}" if missing else "")
        ) from error


def one_line(error: BaseException) -> str:
    """An error's kind and text in one line; also of one that cannot say it."""
    try:
        said = str(error)
    except (Exception, SystemExit):  # whatever it is, the backend's name is what helps
        said = ""
    return " ".join(f"{type(error).__name__}: {said}".split()).rstrip(".:")


def _open_best(
    spec: BackendSpec, refuse: Callable[[Backend], str | None] | None
) -> tuple[Backend, BackendSpec]:
    if spec.options:
        raise BackendError(
            f'"auto" takes no options ({urlencode(spec.options)}); name the backend they are for.'
        )
    points = installed()
    passed_over, not_here, unfit = [], [], []
    for name in PREFERENCE:
        if name not in points:
            continue
        try:
            backend = _constructed(BackendSpec(name, spec.device))
        except BackendError as error:
            passed_over.append(f"{name}: {str(error).rstrip('.')}")
            logger.debug("backend auto passed over %s", passed_over[-1])
            not_here.append(name)
            continue
        reason = None if refuse is None else refuse(backend)
        if reason:
            passed_over.append(f"{name}: {reason.rstrip('.')}")
            unfit.append(passed_over[-1])
            continue
        chosen = BackendSpec(name, backend.device)
        why = "".join(f"; {each}" for each in unfit)
        if not_here:
            why += f"; {' and '.join(not_here)} cannot run here (`beamsieve backends` says why)"
        logger.info("backend auto took %s%s", chosen, why or ", the first choice")
        return backend, chosen
    reasons = "; ".join(passed_over) or f"none of {', '.join(PREFERENCE)} is installed"
    raise BackendError(f"No backend can serve this: {reasons}.")


def load_class(name: str) -> type[Backend]:
    """Import the class of one installed backend.

    Raises:
        BackendError: not installed, or its import fails: with the import's own error, and the pip
            line for what it needs.
    """
    points = installed()
    if name not in points:
        close = difflib.get_close_matches(name, points, 1)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        names = ", ".join(sorted(points)) or "none"
        raise BackendError(
            f"The backend {name!r} is not installed. {hint}Installed are: {names}. Take one of "
            f"these, or pip install the package that brings {name!r}."
        )
    point = points[name]
    try:
        loaded = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may end the program where it has no driver
        raise BackendError(
            f"The backend {name!r} cannot be imported: {one_line(error)}. "
            f"Install what it needs with: {needs(point, error)}"
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, Backend)):
        raise BackendError(
            f"The entry point {name!r} names {point.value}, which is no subclass of "
            f"beamsieve.interface.Backend."
        )
    return loaded


def list_backends(check: bool = False) -> list[BackendInfo]:
    """Every installed backend, by name.

    Args:
        check: import and open each one too, so that its devices, or what is missing, are known.
            Without it nothing is imported.
    """
    found = []
    for name, point in sorted(installed().items()):
        dist = point.dist
        info = BackendInfo(name, point.value, "" if dist is None else f"{dist.name} {dist.version}")
        found.append(_checked(info, point) if check else info)
    return found


def _checked(info: BackendInfo, point: EntryPoint) -> BackendInfo:
    devices: tuple[str, ...] = ()
    projections: tuple[str, ...] = ()
    missing: Mapping[str, str] = {}
    error, install = "", ""
    try:
        backend = _constructed(BackendSpec(info.name))
        devices, projections = backend.capabilities.devices, backend.capabilities.projections
        missing = {str(name): line for name, line in backend.missing_projections().items()}
    except BackendError as failure:
        error = " ".join(str(failure).split())
        install = needs(point, failure.__cause__)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # one broken backend must not hide the others
        error = one_line(failure)
    return replace(
        info,
        devices=devices,
        error=error,
        install=install,
        checked=True,
        projections=projections,
        missing=missing,
    )
