"""Catalogs: (item, semantic ID) pairs, read from what people have, validated, and described."""

from beamsieve.catalog.catalog import Catalog
from beamsieve.catalog.report import CatalogReport, Collisions, LevelReport

__all__ = ["Catalog", "CatalogReport", "Collisions", "LevelReport"]
