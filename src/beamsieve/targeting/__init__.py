"""Targeting: which items a request may see, decided inside the decode and exactly at its end."""

from beamsieve.targeting.attributes import Attribute, read_attributes
from beamsieve.targeting.item_rules import ItemRules
from beamsieve.targeting.matchers import Matchers, StepMatchers
from beamsieve.targeting.row_table import RowTable
from beamsieve.targeting.rules import UnreachableItemWarning

__all__ = [
    "Attribute",
    "ItemRules",
    "Matchers",
    "RowTable",
    "StepMatchers",
    "UnreachableItemWarning",
    "read_attributes",
]
