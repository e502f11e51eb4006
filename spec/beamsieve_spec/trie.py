"""The catalog as a trie.

A catalog is a list of (item, semantic ID) pairs. A semantic ID (SID) is a tuple of tokens; token l
comes from level l's codebook, ``0 … V_l - 1``. All prefixes of all SIDs form a trie: from the empty
prefix, the root, each token leads one level down. Two numberings of it are stored and carried:

- the **row** of a prefix is its place among all prefixes *of the same length*, in lexicographic
  order. Step t's table has one row per prefix of length t - 1. Listing the children of those rows
  lists all prefixes of length t in order: an entry's position in table t *is* its row in t + 1's;
- the **leaf** of a SID is its place among all SIDs in lexicographic order. The SIDs below any
  prefix have consecutive leaves: its leaf interval.
"""

from collections.abc import Hashable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

SID = tuple[int, ...]
"""A semantic ID, or the first tokens of one."""


class CatalogError(ValueError):
    """These rows cannot be a catalog."""


class InputError(ValueError):
    """An argument of a call has the wrong shape or value."""


class Trie:
    """Semantic IDs as nested dicts, ``root[t_1][t_2]…``; the dict of a complete SID is empty.

    >>> trie = Trie([(5, 6), (1, 2), (1, 4), (5, 6)], items=["a", "b", "c", "d"])
    >>> trie.root
    {5: {6: {}}, 1: {2: {}, 4: {}}}
    >>> trie.children((1,)), trie.table(2)
    ([2, 4], ([0, 2, 3], [2, 4, 6]))
    >>> trie.prefixes[1], trie.row[5,]
    ([(1,), (5,)], 1)
    >>> trie.leaves, trie.leaf[5, 6], trie.leaf_interval[1,]
    ([(1, 2), (1, 4), (5, 6)], 2, (0, 2))
    >>> trie.items[5, 6]
    ['a', 'd']

    Attributes:
        codebooks, length: V_1 … V_L, and L, the number of levels; both with the end tokens.
        prefixes, row: ``prefixes[l][r]`` is the prefix of length l whose row is r.
        leaves, leaf: the distinct SIDs in lexicographic order, and the place of each.
        leaf_interval: of each prefix, the first leaf below it and one past the last.
        items: the items of each SID (a collision when there are several), in input order.
    """

    def __init__(
        self,
        sids: Iterable[Sequence[int]],
        items: Sequence[Hashable] | None = None,
        codebooks: Sequence[int] | None = None,
        end_token: bool = False,
    ) -> None:
        """Build the trie of ``sids``, in whatever order they come; refuse what is no catalog.

        Args:
            sids: one per row; -1 pads the end of a shorter one.
            items: one per row; the row numbers when None. An item may have several SIDs.
            codebooks: V_1 … V_L; when None, just large enough for the tokens that occur.
            end_token: append an end token to every SID, so that one may be a prefix of another.

        Raises:
            CatalogError: no rows, an empty or over-long SID, a token outside its codebook, or
                (without end tokens) a SID that is a proper prefix of another.
        """
        rows = [without_padding(sid) for sid in sids]
        names = range(len(rows)) if items is None else items
        largest = [max(level) for level in zip_longest(*rows, fillvalue=0)]
        sizes = [v + 1 for v in largest] if codebooks is None else [int(v) for v in codebooks]
        check_tokens(rows, sizes)
        if end_token:
            rows = [with_end_token(sid, sizes) for sid in rows]
            sizes = [v + 1 for v in sizes] + [1]
        self.end_token = end_token
        self.codebooks = sizes
        self.length = len(sizes)
        self.root: dict[int, Any] = {}
        self.items: dict[SID, list[Hashable]] = {}
        for sid, item in dict.fromkeys(zip(rows, names, strict=True)):  # a repeated pair once
            node = self.root
            for token in sid:
                node = node.setdefault(token, {})
            self.items.setdefault(sid, []).append(item)
        for sid in self.items:
            if self.children(sid):
                raise CatalogError(f"SID {sid} is a proper prefix of another: use end_token=True")

        self.leaves = sorted(self.items)
        self.leaf = {sid: leaf for leaf, sid in enumerate(self.leaves)}
        self.prefixes = [
            sorted({sid[:length] for sid in self.leaves if len(sid) >= length})
            for length in range(self.length + 1)
        ]
        self.row = {prefix: r for level in self.prefixes for r, prefix in enumerate(level)}
        self.leaf_interval: dict[SID, tuple[int, int]] = {}
        for leaf, sid in enumerate(self.leaves):
            for length in range(len(sid) + 1):
                first, _ = self.leaf_interval.get(sid[:length], (leaf, leaf))
                self.leaf_interval[sid[:length]] = (first, leaf + 1)

    def children(self, prefix: Sequence[int]) -> list[int]:
        """The tokens that may follow, ascending; none after a complete SID or an unknown prefix."""
        node = self.root
        for token in prefix:
            node = node.get(token, {})
        return sorted(node)

    def items_of(self, sid: Sequence[int]) -> list[Hashable]:
        """The items of a SID, given with or without its end token; none if no row has that SID.

        >>> trie = Trie([(1,), (1, 2)], items="ab", end_token=True)
        >>> [trie.items_of(sid) for sid in [(1,), (1, 3), (1, 2), (1, 2, 0), (2,)]]
        [['a'], ['a'], ['b'], ['b'], []]
        """
        sid = without_padding(sid)
        if self.end_token and sid not in self.items and len(sid) < self.length:
            sid = (*sid, self.codebooks[len(sid)] - 1)
        return self.items.get(sid, [])

    def table(self, step: int) -> tuple[list[int], list[int]]:
        """Step's table as an index stores it: where each row starts, and the tokens of all rows."""
        row_starts, tokens = [0], list[int]()
        for prefix in self.prefixes[step - 1]:
            tokens += self.children(prefix)
            row_starts.append(len(tokens))
        return row_starts, tokens


def without_padding(sid: Sequence[int]) -> SID:
    """``sid`` without the -1s at its end."""
    tokens = [int(token) for token in sid]
    while tokens and tokens[-1] == -1:
        tokens.pop()
    return tuple(tokens)


def check_tokens(sids: Sequence[SID], codebooks: Sequence[int]) -> None:
    """Refuse a catalog without rows, and every row that the codebooks cannot spell."""
    if not sids:
        raise CatalogError("the catalog is empty")
    for number, sid in enumerate(sids):
        if not 1 <= len(sid) <= len(codebooks):
            raise CatalogError(f"row {number} has {len(sid)} tokens, not 1 to {len(codebooks)}")
        for token, size in zip(sid, codebooks, strict=False):
            if not 0 <= token < size:
                raise CatalogError(f"row {number}: token {token} is not among 0 … {size - 1}")


def with_end_token(sid: SID, codebooks: Sequence[int]) -> SID:
    """``sid`` and its end token: one past the tokens of the level where it stands.

    Behind the last level it is that level's only token, 0.

    >>> with_end_token((1,), [10, 20]), with_end_token((1, 2), [10, 20])
    ((1, 20), (1, 2, 0))
    """
    return (*sid, codebooks[len(sid)] if len(sid) < len(codebooks) else 0)
