"""Catalogs: (item, semantic ID) pairs, read from what people have, validated, and described."""

from beamsieve.catalog.catalog import Catalog

__all__ = ["Catalog"]
