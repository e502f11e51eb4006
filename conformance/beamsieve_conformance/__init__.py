"""The conformance suite: is a backend right?

Run it by name against any installed backend, from the command line or as a pytest plug-in::

    beamsieve conformance torch
    pytest -p beamsieve_conformance --backend torch -k order

What is checked, and how near is near enough, stands in :mod:`beamsieve_conformance.compare`; the
tests are in ``suite/``. ``docs/write-a-backend.md`` walks through a backend of your own.
"""

from __future__ import annotations

from beamsieve_conformance.runner import run

__all__ = ["run"]

pytest_plugins = ["beamsieve_conformance.plugin"]
