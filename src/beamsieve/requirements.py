"""How to install what a backend needs, without importing it."""

from __future__ import annotations

import ast
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path


def needs(point: EntryPoint, error: BaseException | None) -> str:
    """How to install what this backend needs: as its class says, else by its package."""
    return _declared(point) or _pip_line(point, error)


def _declared(point: EntryPoint) -> str:
    """The class's ``requires``. It is read from the source, for the module may not be imported;
    "" where that is not found, or no plain text there.
    """
    try:
        tree = ast.parse(_source(point.module))
    except (ImportError, OSError, SyntaxError, ValueError):
        return ""
    for kind in tree.body:
        if isinstance(kind, ast.ClassDef) and kind.name == point.attr:
            for line in kind.body:
                names = line.targets if isinstance(line, ast.Assign) else []
                if isinstance(line, ast.AnnAssign):
                    names = [line.target]
                if any(isinstance(name, ast.Name) and name.id == "requires" for name in names):
                    value = getattr(getattr(line, "value", None), "value", None)
                    return value if isinstance(value, str) else ""
    return ""


def _source(module: str) -> str:
    top, *inner = module.split(".")
    spec = find_spec(top)  # of a top package, which imports nothing
    if spec is None:
        return ""
    if not inner:
        return Path(spec.origin or "").read_text(encoding="utf-8")
    for folder in spec.submodule_search_locations or ():
        place = Path(folder, *inner)
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                return file.read_text(encoding="utf-8")
    return ""


def _pip_line(point: EntryPoint, error: BaseException | None) -> str:
    """How to install what this backend needs: its package's extra of its name, if there is one."""
    dist = point.dist
    if dist is not None and point.name in (dist.metadata.get_all("Provides-Extra") or []):
        return f"pip install '{dist.name}[{point.name}]'"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"pip install {error.name.partition('.')[0]}"
    return "pip install --upgrade " + ("beamsieve" if dist is None else dist.name)
