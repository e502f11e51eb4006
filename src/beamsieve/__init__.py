"""Constrained decoding for generative retrieval, filter-first.

import beamsieve as bs

index = bs.Index.build(bs.Catalog.read("items.parquet"))
engine = bs.Engine(index, backend="torch:cpu")
beams = engine.search(score, widths=[50, 50, 50], batch=2)
hits = engine.results(beams, k=10)
"""

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
from beamsieve.interface import Beams, Candidates, Capabilities
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
    "RequestError",
    "RequestHits",
    "UnreachableItemWarning",
    "list_backends",
]
