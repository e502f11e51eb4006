"""Golden vectors: inputs and expected outputs as JSON, for a backend in any language.

README.md beside the files says how to read them; :mod:`beamsieve_conformance.make_vectors` made
them from the specification.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAMES = ("catalogs", "searches", "bloom", "targeting")


def read(name: str) -> list[dict[str, Any]]:
    """The cases of one file, as they stand there."""
    text = files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8")
    cases: list[dict[str, Any]] = json.loads(text)["cases"]
    return cases


def floats(values: Any) -> NDArray[np.float64]:
    """Nested lists of numbers, "nan", "inf" and "-inf" as a float64 array."""
    return np.array(values, dtype=np.object_).astype(np.float64)
