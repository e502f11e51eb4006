"""Constrained decoding for generative retrieval, filter-first.

import beamsieve as bs

index = bs.Index.build(bs.Catalog.read("items.parquet"))
engine = bs.Engine(index, backend="torch:cpu")
beams = engine.search(score, widths=[50, 50, 50], batch=2)
hits = engine.results(beams, k=10)
"""

TYPE_CHECKING = False  # as in typing, whose import takes longer than all that stands here
if TYPE_CHECKING:
    from beamsieve.catalog import Catalog
    from beamsieve.engine import Engine
    from beamsieve.errors import (
        BackendError,
        BeamsieveError,
        CatalogError,
        CheckpointError,
        IndexFileError,
        InputError,
        RequestError,
    )
    from beamsieve.index import Index
    from beamsieve.interface import Beams, Candidates, Capabilities, PreparedHead
    from beamsieve.plan import Plan
    from beamsieve.registry import list_backends
    from beamsieve.results import Hit, RequestHits
    from beamsieve.targeting import Attribute, UnreachableItemWarning

__all__ = [
    "Attribute",
    "BackendError",
    "Beams",
    "BeamsieveError",
    "Candidates",
    "Capabilities",
    "Catalog",
    "CatalogError",
    "CheckpointError",
    "Engine",
    "Hit",
    "Index",
    "IndexFileError",
    "InputError",
    "Plan",
    "PreparedHead",
    "RequestError",
    "RequestHits",
    "UnreachableItemWarning",
    "list_backends",
]

# A name is imported when it is first asked for, so that the command line starts at once. The
# imports above say the same to type checkers and editors.
_HOME = {
    "Attribute": "targeting",
    "BackendError": "errors",
    "Beams": "interface",
    "BeamsieveError": "errors",
    "Candidates": "interface",
    "Capabilities": "interface",
    "Catalog": "catalog",
    "CatalogError": "errors",
    "CheckpointError": "errors",
    "Engine": "engine",
    "Hit": "results",
    "Index": "index",
    "IndexFileError": "errors",
    "InputError": "errors",
    "Plan": "plan",
    "PreparedHead": "interface",
    "RequestError": "errors",
    "RequestHits": "results",
    "UnreachableItemWarning": "targeting",
    "list_backends": "registry",
}


if not TYPE_CHECKING:  # which would take any name for known

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _HOME:
            value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        elif name in _HOME.values():  # the modules are names of the package, too
            value = import_module(f"{__name__}.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value  # asked for once
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
