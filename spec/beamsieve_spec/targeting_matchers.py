"""The matchers of the trie, and the exact sets of a request.

Every prefix but the root has a **matcher**: one row for all items below it, or a few rows, each for
a part of them. A request may go on to a prefix when any of its rows passes.

**The law: no eligible item is ever lost.** An eligible item's own row passes
(:mod:`beamsieve_spec.targeting_bits`). Each union of rows that holds it contains its bits, so it
passes too; and at every prefix of its SID, one row of the matcher is such a union. Nothing else may
be concluded from a matcher: what passes need not be eligible. A refusal survives a union only where
every item below refuses, and with one row per prefix a viewer may be let through by several items,
none of which would take them alone.

**Partitions.** The second looseness shrinks when the SIDs below a prefix are dealt into k parts
with one row each. They are dealt in lexicographic order; a SID's row is the union of its items'. A
SID goes to the part whose row, all segments together, would have the fewest bits set once the SID
has joined it; the first such part if there are several, where parts that are still empty come last.
The *fill* of a row is the share of its bits that are set; bits that only fill up a word are left
out of both.

- *static*: k is given per level; a prefix with fewer SIDs than k has as many parts as SIDs;
- *dynamic*: a prefix takes the smallest k whose rows' mean fill is at most the target, and k_max
  (or its number of SIDs, if that is less) when none reaches it.

Dealt into two parts, the two items that misled one row in targeting_bits no longer do:

>>> toy = [Attribute("country", ["US", "CA", "UK"]), Attribute("age", ["18-24", "25-34"])]
>>> rules = {
...     "a": {"country": {"accepts": ["US"]}, "age": {"accepts": ["18-24"]}},
...     "b": {"country": {"accepts": ["CA"]}, "age": {"accepts": ["25-34"]}},
... }
>>> trie = Trie([(0, 0), (0, 1)], items=["a", "b"])
>>> thirty = [{"country": "US", "age": "25-34"}]
>>> Targeting(trie, toy, rules).permits(thirty)(0, (0,))
True
>>> Targeting(trie, toy, rules, static=[2, 1]).permits(thirty)(0, (0,))
False

**Exact sets.** ``exclude`` and ``allow`` name items; what counts in a step is leaves. A leaf is
permitted when one of its items is; a prefix is kept exactly when a permitted leaf lies in its leaf
interval, so no beam walks into a dead end. (A device may be told the permitted leaves or the
others, whichever are fewer.)

>>> seen = [{"country": "US", "age": "18-24", "exclude": ["a"]}]
>>> [Targeting(trie, toy, rules).permits(seen)(0, p) for p in [(0,), (0, 0), (0, 1)]]
[True, False, False]

A prefix that a request begins with is not tested, only what follows it. With the exact rules of
:mod:`beamsieve_spec.targeting_rules` on the items at the end, nothing ineligible is ever returned.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from beamsieve_spec.search import EligibleItem
from beamsieve_spec.step import Permits
from beamsieve_spec.targeting_bits import Row, asked, item_row, passes, row_bits, union
from beamsieve_spec.targeting_rules import (
    Attribute,
    Request,
    RequestError,
    Rule,
    check_request,
    check_rules,
    eligible,
    meaning,
    permitted,
)
from beamsieve_spec.trie import SID, CatalogError, InputError, Trie


class Targeting:
    """The matchers of one catalog.

    Attributes:
        matchers: the rows of each prefix.
    """

    def __init__(
        self,
        trie: Trie,
        attributes: Sequence[Attribute],
        rules: Mapping[Hashable, Mapping[str, Rule]],
        static: Sequence[int] | None = None,
        dynamic: tuple[float, int] | None = None,
    ) -> None:
        """Build every matcher.

        Args:
            trie: the catalog.
            attributes: in the order that fixes the bits.
            rules: of each item; an item left out has none.
            static: the number of parts at each of the L levels; None for one row per prefix.
            dynamic: target fill and k_max, in place of ``static``.

        Raises:
            CatalogError: two attributes of one name, or rules that the attributes do not allow.
        """
        if len({attribute.name for attribute in attributes}) != len(attributes):
            raise CatalogError("two attributes have one name")
        for mine in rules.values():
            check_rules(attributes, mine)
        self.trie, self.attributes, self.rules = trie, attributes, rules
        self.leaf_rows = [
            union(item_row(attributes, rules.get(item, {})) for item in trie.items[sid])
            for sid in trie.leaves
        ]
        self.matchers: dict[SID, list[Row]] = {}
        for level, prefixes in enumerate(trie.prefixes[1:]):
            for prefix in prefixes:
                rows = self.leaf_rows[slice(*trie.leaf_interval[prefix])]
                if dynamic is not None:
                    self.matchers[prefix] = dealt_to_target(rows, *dynamic, row_bits(attributes))
                else:
                    self.matchers[prefix] = dealt(rows, 1 if static is None else static[level])

    def permits(self, requests: Sequence[Request]) -> Permits:
        """What ``permits`` of a step is, for these requests.

        Raises:
            RequestError: a request that the attributes do not allow, named by its place.
        """
        asks, leaves = [], []
        items = [item for sid in self.trie.leaves for item in self.trie.items[sid]]
        for b, request in enumerate(requests):
            try:
                check_request(self.attributes, request, items)
            except InputError as error:
                raise RequestError(f"request {b}: {error}") from error
            asks.append(asked(self.attributes, request))
            leaves.append(
                {leaf for leaf in range(len(self.trie.leaves)) if self.has_permitted(leaf, request)}
            )

        def permits(b: int, prefix: SID) -> bool:
            below = range(*self.trie.leaf_interval[prefix])
            return any(passes(row, asks[b]) for row in self.matchers[prefix]) and any(
                leaf in leaves[b] for leaf in below
            )

        return permits

    def has_permitted(self, leaf: int, request: Request) -> bool:
        """Whether the request's exact sets permit an item of this leaf."""
        return any(permitted(item, request) for item in self.trie.items[self.trie.leaves[leaf]])

    def identity(self) -> tuple[Any, ...]:
        """What the fingerprint of an index names: two indexes have one exactly when this is equal.

        The order of the catalog's rows counts only for the items under one SID. How tables are laid
        out, and in which words a rule says whom it accepts, does not count.
        """
        trie, declared = self.trie, self.attributes
        sids = [(sid, trie.items[sid]) for sid in trie.leaves]
        items = {item: self.rules.get(item, {}) for _, mine in sids for item in mine}
        means = {i: [meaning(a, rules.get(a.name)) for a in declared] for i, rules in items.items()}
        matchers = self.matchers if declared else {}
        return trie.codebooks, trie.end_token, sids, list(declared), means, matchers

    def eligible(self, requests: Sequence[Request]) -> EligibleItem:
        """What ``eligible`` of the results is: the exact rules and the exact sets."""
        return lambda b, item: (
            eligible(self.attributes, self.rules.get(item, {}), requests[b])
            and permitted(item, requests[b])
        )


def dealt(rows: Sequence[Row], k: int) -> list[Row]:
    """``rows`` dealt into k parts (no more than there are rows), and the union of each.

    >>> dealt([(0b0011,), (0b1100,), (0b0010,), (0b0100,)], k=2)
    [(3,), (12,)]
    """
    parts: list[Row] = []
    for row in rows:
        joined = [union([part, row]) for part in parts]
        if len(parts) < k:
            joined.append(row)  # the first of the empty parts
        best = min(range(len(joined)), key=lambda part: bits_set(joined[part]))
        parts[best : best + 1] = [joined[best]]
    return parts


def dealt_to_target(rows: Sequence[Row], target: float, k_max: int, bits: int) -> list[Row]:
    """``rows`` dealt into as few parts as bring their mean fill down to ``target``.

    >>> dealt_to_target([(0b0011,), (0b1100,), (0b0010,)], target=0.5, k_max=3, bits=4)
    [(3,), (12,)]
    """
    k, parts = 1, dealt(rows, 1)
    while k < min(k_max, len(rows)) and sum(map(bits_set, parts)) > target * len(parts) * bits:
        k += 1
        parts = dealt(rows, k)
    return parts


def bits_set(row: Row) -> int:
    """How many bits of a row are set."""
    return sum(segment.bit_count() for segment in row)
