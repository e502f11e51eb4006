"""beamsieve, as a specification that runs.

This package says what every backend must compute. It is written to be read, in this order:

1. :mod:`~beamsieve_spec.trie`: the catalog's semantic IDs as a trie of dicts, and the row and leaf
   numbers that every table of the index uses;
2. :mod:`~beamsieve_spec.normalize`: logits, and the three ways they become log-probabilities;
3. :mod:`~beamsieve_spec.beams`: what a beam carries, and where a search begins;
4. :mod:`~beamsieve_spec.step`: one step, in its two halves;
5. :mod:`~beamsieve_spec.search`: all steps, and the items that the beams stand for.

Targeting (which items a request may see) is named here as ``permits`` and, where beams become
items, ``eligible``. What stands behind it is :mod:`~beamsieve_spec.targeting_rules` (who may see
an item), :mod:`~beamsieve_spec.targeting_bits` (rules as bits, with
:mod:`~beamsieve_spec.targeting_hash`) and :mod:`~beamsieve_spec.targeting_matchers` (the trie's).

Correct, complete, clear, in that order, and never fast: dicts, short loops, float64, NumPy alone.
Letters: B requests, M places for beams, V tokens in a codebook, L levels, t tokens decoded so far.
"""

from beamsieve_spec.beams import Beams, begin
from beamsieve_spec.normalize import log_probabilities, project
from beamsieve_spec.search import Hit, results, search
from beamsieve_spec.step import Candidates, add_nudge, candidates, select, step
from beamsieve_spec.trie import CatalogError, InputError, Trie

__all__ = ["Beams", "Candidates", "CatalogError", "Hit", "InputError", "Trie", "add_nudge", "begin"]
__all__ += ["candidates", "log_probabilities", "project", "results", "search", "select", "step"]
