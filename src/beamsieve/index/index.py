"""The index: per-step tables on the host, and what a leaf stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beamsieve import parallel
from beamsieve.catalog.validate import Progress
from beamsieve.errors import BeamsieveError, InputError
from beamsieve.index.build import LayoutChoice, build_parts
from beamsieve.index.lookups import Lookups
from beamsieve.index.parts import IndexParts, fingerprints, refuse_damaged
from beamsieve.index.removals import Change, OnMissing
from beamsieve.index.statistics import statistics
from beamsieve.index.storage import host_arrays, load_index, save_index
from beamsieve.index.update import updated_parts
from beamsieve.interface import RequestFilters
from beamsieve.targeting.attributes import lay_out
from beamsieve.targeting.partitions import Partitions
from beamsieve.targeting.requests import eligible_items, encode_requests

if TYPE_CHECKING:
    from beamsieve.catalog import Catalog


class Index(Lookups):
    """A catalog, sliced by step. Made by ``Index.build`` or ``Index.load``; never changed.

    A *leaf* is the place of a semantic ID among all distinct ones, in lexicographic order. Items
    are numbered in the order of their first leaf.

    Attributes:
        tables: one per step.
        codebooks: V_1 … V_L as tables and heads use them, end tokens included.
        end_token: whether every semantic ID ends with an end token, which users never see.
        items: the users' item ids by item number.
        titles: Arrow large_string [items], or None.
        fingerprint: 32 hexadecimal digits: equal for equal semantic IDs and items, whatever the
            layouts of the tables.
        sid_fingerprint: the same of codebooks and semantic IDs alone.
        row_layout: the targeting attributes and their bits.
        item_rules: the items' exact targeting rules, or None where no attributes are declared.
        matchers: the tables' edge matchers, or None where no attributes are declared.
        parts: all that the index holds; ``Index(dataclasses.replace(index.parts, …))`` makes
            another one.
    """

    def __init__(
        self, parts: IndexParts, prints: tuple[str, str] | None = None, leaves: int | None = None
    ) -> None:
        self.tables = parts.tables
        self.codebooks = parts.codebooks
        self.end_token = parts.end_token
        self.items = parts.items
        self.titles = parts.titles
        self.item_rules = parts.item_rules
        self.matchers = parts.matchers
        self.row_layout = lay_out(()) if self.item_rules is None else self.item_rules.layout
        self.fingerprint, self.sid_fingerprint = prints or fingerprints(parts)
        self.parts = parts
        if leaves is not None:
            self.leaf_count = leaves

    @classmethod
    def build(
        cls,
        catalog: Catalog,
        layout: LayoutChoice = None,
        *,
        static: Sequence[int] | None = None,
        dynamic: tuple[float, int] | None = None,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> Index:
        """Build the tables of a catalog.

        Args:
            catalog: what to build from.
            layout: "dense" or "sparse" forces every table's layout, a sequence each table's own;
                None leaves it to the measured size.
            static: into how many parts the matchers of each level are divided.
            dynamic: in its place, the target fill of a matcher and the most parts.
            progress: called with what is being done, how much of it is done, how much there is.
                What it raises ends the build, which leaves nothing behind.
            threads: how many to use; as many as there are processors when None. The index is the
                same with any number.

        Raises:
            InputError: ``layout``, ``static`` or ``dynamic`` does not fit.
        """
        if not hasattr(catalog, "order"):
            raise InputError(f"An index is built of a Catalog, not of {catalog!r}.")
        partitions = Partitions.of(static, dynamic, catalog.order.length)
        with parallel.team(threads):
            return cls(*build_parts(catalog, layout, partitions, progress, threads))

    def update(
        self,
        add: Catalog | None = None,
        remove: Iterable[Any] | Catalog | None = None,
        *,
        remove_sids: ArrayLike | None = None,
        on_missing: OnMissing = "raise",
        layout: LayoutChoice = None,
        progress: Progress | None = None,
        threads: int | None = None,
        compiled: bool | None = None,
    ) -> Index:
        """Another index, of a changed catalog; this one stays as it is.

        The changed catalog is: the (item, semantic ID) pairs of this index that are not removed, in
        its order, then the added ones, in theirs. The result is byte for byte what ``Index.build``
        makes of it with this index's codebooks, but what is here is merged, not sorted again.
        (Where semantic IDs are of several lengths it is built anew, in a build's time.) Removing
        comes first: a pair that is removed and added stands behind the others of its semantic ID.
        Targeting rules stay with their items, added ones bring theirs, and the matchers are united
        anew, into as many parts as before.

        Args:
            add: what to add. Its semantic IDs must have this index's number of levels, and tokens
                below this index's codebook sizes; it must declare this index's attributes. A pair
                that is there already stays as it is, and an item that is there keeps its title and
                must come with the rules that it has.
            remove: ids of items, each to be removed from all its semantic IDs; or a Catalog of the
                very pairs to remove.
            remove_sids: integers [n, L], -1 behind the end: semantic IDs to remove with all their
                items.
            on_missing: "raise" if something to be removed is not there, or "skip" it.
            layout: as in ``build``.
            progress: as in ``build``.
            threads: as in ``build``.
            compiled: whether to work in loops that Numba compiles (``beamsieve[compiled]``), which
                is a few times as fast and gives the same bytes. None: where Numba is installed, for
                eight million pairs and more, or for fewer where it is imported already.

        Raises:
            CatalogError: what is to be added does not fit, what is to be removed is not there, or
                nothing would be left.
            InputError: an argument cannot be read; or compiled loops are asked for, but Numba is
                not installed.
            BackendError: compiled loops are asked for, but Numba cannot be imported.
            IndexFileError: this index was loaded from a damaged file, which shows now; not all
                damage does.
        """
        change = Change(add, remove, remove_sids, on_missing)
        with parallel.team(threads):
            try:
                return Index(*updated_parts(self, change, layout, threads, progress, compiled))
            except BeamsieveError:
                raise
            except (IndexError, ValueError, OverflowError, MemoryError):
                refuse_damaged(self.parts, (self.fingerprint, self.sid_fingerprint), threads)
                raise

    def save(self, path: str | Path, progress: Progress | None = None) -> None:
        """Write the index to a safetensors file; never leaves half a file under that name.

        Raises:
            IndexFileError: the file cannot be written.
        """
        save_index(
            path,
            self.parts,
            (self.fingerprint, self.sid_fingerprint),
            self.leaf_count,
            progress,
        )

    @classmethod
    def load(
        cls,
        path: str | Path,
        mmap: bool = True,
        verify: bool = True,
        progress: Progress | None = None,
    ) -> Index:
        """Read an index from its file.

        Args:
            path: the file.
            mmap: map the file into memory, so that only what is used is read.
            verify: compare the checksum of every array, which reads the whole file once. Without
                it, only the header is checked.
            progress: called as checksums are compared.

        Raises:
            IndexFileError: the file is missing, foreign, of another format version, truncated or
                altered.
        """
        return cls(*load_index(path, mmap, verify, progress))

    def encode_requests(self, requests: Sequence[Any], batch: int) -> RequestFilters:
        """Encode a batch's targeting, once, for the backends.

        Args:
            requests: per request a dict of what is known of its viewer, with ``allow`` and
                ``exclude`` if wanted; or None for no targeting.
            batch: how many requests there must be.

        Raises:
            RequestError: naming the request by its place in the batch.
        """
        return encode_requests(self, requests, batch)

    def eligible(self, request: Any, numbers: ArrayLike, place: int = 0) -> NDArray[np.bool_]:
        """bool [n]: which of these item numbers a request may be shown, by the exact rules.

        Args:
            request: one entry of what ``encode_requests`` takes.
            numbers: item numbers.
            place: the request's place in its batch, for errors.

        Raises:
            RequestError: the request cannot be read.
        """
        return eligible_items(self, request, np.asarray(numbers, np.int64).ravel(), place)

    @property
    def device_bytes(self) -> int:
        """Bytes of tables and matchers, which a backend puts on its device."""
        matchers = 0 if self.matchers is None else self.matchers.nbytes
        return sum(table.nbytes for table in self.tables) + matchers

    @property
    def host_bytes(self) -> int:
        """Bytes of what stays on the host: items, titles, and which leaf stands for which item."""
        return sum(array.nbytes for array in host_arrays(self.parts).values())

    def stats(self) -> Mapping[str, Any]:
        """Sizes, as plain numbers and strings: of the whole, and per table under "tables"."""
        return statistics(self)

    def __repr__(self) -> str:
        return (
            f"Index({self.leaf_count} semantic IDs, {len(self.items)} items, codebooks "
            f"{'×'.join(map(str, self.codebooks))}, {self.fingerprint[:8]})"
        )
