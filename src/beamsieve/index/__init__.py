"""The index: which tokens may follow each valid prefix, sliced by step."""

from beamsieve.index.index import Index
from beamsieve.index.pairs import LeafItems
from beamsieve.index.tables import Layout, StepTable

__all__ = ["Index", "Layout", "LeafItems", "StepTable"]
