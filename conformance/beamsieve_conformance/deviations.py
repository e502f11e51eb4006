"""What a backend is known to do otherwise: one file per backend, and strict.

A deviation names one test of the suite, says why the backend fails it, and which error the failure
is. It is no way to hide a defect: an entry whose test passes fails the run, and so does an entry
that matches no test, or whose test fails with another error.

The file is TOML. For a backend ``NAME`` of this distribution it is ``deviations/NAME.toml`` here;
a backend of any other distribution ships ``beamsieve_deviations.toml`` in its top package::

    [[deviation]]
    test = "test_order.py::test_equal_keys_go_by_parent"   # or with its parameters: …[float32]
    kind = "notyet"
    reason = "topk of the array library is not stable on this device"
    raises = "AssertionError"

``kind`` is ``notimpl`` (this backend could do it, and does not yet), ``notyet`` (what it is built
on cannot do it) or ``never`` (it will stay so, for the reason given).
"""

from __future__ import annotations

import builtins
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from beamsieve import errors

KINDS = ("notimpl", "notyet", "never")
OWN_FILE = "beamsieve_deviations.toml"


class DeviationError(ValueError):
    """A deviations file cannot be used; names the file, the entry and what is wrong."""


@dataclass(frozen=True)
class Deviation:
    """One known failure. ``test`` is "module.py::function" or "module.py::function[parameters]"."""

    test: str
    kind: str
    reason: str
    raises: type[Exception]

    def matches(self, test: str) -> bool:
        """Whether this entry speaks of ``test``, which is named with its parameters."""
        return test == self.test or test.partition("[")[0] == self.test


def read(path: Path) -> list[Deviation]:
    """The entries of one file.

    Raises:
        DeviationError: it is no TOML, or an entry lacks a field or holds one that is unknown.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DeviationError(f"{path}: {error}") from error
    if set(content) - {"deviation"}:
        raise DeviationError(f"{path}: only [[deviation]] entries belong here")
    return [_entry(path, n, raw) for n, raw in enumerate(content.get("deviation", []), start=1)]


def _entry(path: Path, number: int, raw: dict[str, Any]) -> Deviation:
    where = f"{path}, entry {number}"
    wanted = {"test", "kind", "reason", "raises"}
    if set(raw) != wanted or not all(isinstance(value, str) and value for value in raw.values()):
        raise DeviationError(f"{where}: an entry has exactly {', '.join(sorted(wanted))}, all text")
    if raw["kind"] not in KINDS:
        raise DeviationError(f"{where}: kind is one of {', '.join(KINDS)}, not {raw['kind']!r}")
    error = getattr(errors, raw["raises"], None) or getattr(builtins, raw["raises"], None)
    if not (isinstance(error, type) and issubclass(error, Exception)):
        raise DeviationError(
            f"{where}: raises is an error of beamsieve or of Python, not {raw['raises']!r}"
        )
    if error in (Exception, errors.BeamsieveError):
        raise DeviationError(f"{where}: raises is {raw['raises']!r}, which every failure would be")
    return Deviation(raw["test"], raw["kind"], raw["reason"], error)


def find(backend: str, package: str) -> list[Deviation]:
    """The deviations of a backend: this distribution's file of its name, or its own package's.

    Args:
        backend: the name in the registry.
        package: the import name of the backend's top package.
    """
    top = package.partition(".")[0]
    if top == "beamsieve_backends":
        file = resources.files("beamsieve_conformance") / "deviations" / f"{backend}.toml"
    else:
        try:
            file = resources.files(top) / OWN_FILE
        except TypeError:  # the backend is a single module, which holds no files
            return []
    if not file.is_file():
        return []
    with resources.as_file(file) as path:
        return read(path)
