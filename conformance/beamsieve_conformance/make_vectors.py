"""Write the golden vectors: what the specification answers, as JSON.

    python -m beamsieve_conformance.make_vectors [--check]

writes the files of ``vectors/`` anew; with ``--check`` it names those that differ from what it
would write, and ends with 1 if any does. The same specification gives the same files.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from beamsieve_conformance.vectors import searches, targeting

FOLDER = Path(__file__).parent / "vectors"
DIGITS = 10
"""Decimals of a number: what every platform's exp and log agree on."""

FILES: dict[str, Callable[[], Iterable[dict[str, Any]]]] = {
    "catalogs": searches.catalogs,
    "searches": searches.searches,
    "bloom": targeting.bloom,
    "targeting": targeting.targeting,
}


def document(name: str) -> dict[str, Any]:
    """One file's content, in JSON's own types."""
    return {"format": 1, "cases": [jsonable(case) for case in FILES[name]()]}


def jsonable(value: Any) -> Any:
    """``value`` with lists for tuples, rounded numbers, and "nan", "inf", "-inf" as strings."""
    if isinstance(value, dict):
        return {key: jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | range):
        return [jsonable(inner) for inner in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return str(value)
    return int(value) if value.is_integer() else round(value, DIGITS)


def text(value: Any, indent: str = "") -> str:
    """JSON that a person can read and a diff can show: what fits stands on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= 100 or not isinstance(value, dict | list):
        return line
    inner = indent + " "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {text(each, inner)}" for key, each in value.items()]
        return "{\n" + ",\n".join(inner + part for part in parts) + "\n" + indent + "}"
    if not any(isinstance(each, dict | list) for each in value):
        return line  # a list of numbers is one line, however long
    return "[\n" + ",\n".join(inner + text(each, inner) for each in value) + "\n" + indent + "]"


def same(found: Any, expected: Any) -> bool:
    """Whether two documents agree: exactly, but for the last decimal of a number."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[k], expected[k]) for k in found)
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    numbers = {type(found), type(expected)}
    if float in numbers and numbers <= {float, int}:
        return bool(abs(found - expected) < 2 * 10**-DIGITS)
    return type(found) is type(expected) and bool(found == expected)


def differing() -> list[str]:
    """The names of the files that are not what this module would write."""
    names = []
    for name in FILES:
        path = FOLDER / f"{name}.json"
        written = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        if not same(document(name), written):
            names.append(path.name)
    return names


def main(arguments: list[str]) -> int:
    """Write the files, or check them."""
    if arguments == ["--check"]:
        names = differing()
        for name in names:
            print(f"{name} is not what the specification answers: write the vectors anew")
        return 1 if names else 0
    if arguments:
        print("usage: python -m beamsieve_conformance.make_vectors [--check]", file=sys.stderr)
        return 2
    for name in FILES:
        path = FOLDER / f"{name}.json"
        path.write_text(text(document(name)) + "\n", encoding="utf-8")
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
