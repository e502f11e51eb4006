"""An index as named arrays and a description, to a file and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from beamsieve.catalog.items import ItemIds
from beamsieve.catalog.validate import Progress
from beamsieve.errors import IndexFileError
from beamsieve.index.described import check_arrays, check_fields, partitions_of
from beamsieve.index.files import read_file, text_arrays, text_column, write_file
from beamsieve.index.parts import IndexParts
from beamsieve.index.starts import RowStarts
from beamsieve.index.tables import StepTable
from beamsieve.targeting.attributes import Attribute, RowLayout, lay_out, read_attributes
from beamsieve.targeting.item_rules import ItemRules
from beamsieve.targeting.matchers import Matchers


def host_arrays(parts: IndexParts) -> dict[str, NDArray[Any]]:
    """What stays on the host: which leaf stands for which items, and what is known of them."""
    arrays: dict[str, NDArray[Any]] = {}
    if parts.leaf_starts is not None:
        arrays["leaf_items.starts"] = parts.leaf_starts
    if parts.leaf_numbers is not None:
        arrays["leaf_items.numbers"] = parts.leaf_numbers
    if parts.items.are_strings:
        arrays |= text_arrays("items", parts.items.values)
    else:
        arrays["items"] = parts.items.numpy()
    if parts.titles is not None:
        arrays |= text_arrays("titles", parts.titles)
    if parts.item_rules is not None:
        arrays |= parts.item_rules.arrays()
        for place, rules in enumerate(parts.item_rules.blooms):
            arrays |= text_arrays(f"rules.bloom.{place}.forms", rules.forms)
    return arrays


def save_index(
    path: str | Path,
    parts: IndexParts,
    fingerprints: tuple[str, str],
    leaves: int,
    progress: Progress | None,
) -> None:
    """Write everything to a file."""
    layout = lay_out(()) if parts.item_rules is None else parts.item_rules.layout
    description = {
        "codebooks": list(parts.codebooks),
        "end_token": parts.end_token,
        "leaves": leaves,
        "items": len(parts.items),
        "fingerprint": fingerprints[0],
        "sid_fingerprint": fingerprints[1],
        "tables": [_about_table(table) for table in parts.tables],
        "attributes": [attribute.as_dict() for attribute in layout.attributes],
    }
    arrays = host_arrays(parts)
    for table in parts.tables:
        for name, array in table.arrays.items():
            arrays[f"table.{table.step}.{name}"] = array
    if parts.matchers is not None:
        description["partitions"] = parts.matchers.partitions.as_dict()
        arrays |= parts.matchers.arrays()
    write_file(path, description, arrays, progress)


def load_index(
    path: str | Path, mmap: bool, verify: bool, progress: Progress | None
) -> tuple[IndexParts, tuple[str, str], int]:
    """Read everything from a file: its parts, its fingerprints, and how many leaves it has.

    Raises:
        IndexFileError: the file is missing, foreign, of another format version, truncated or
            altered.
    """
    file = read_file(path, mmap, verify, progress)
    arrays, about = file.arrays, file.description
    try:
        check_fields(about)
        codebooks = tuple(about["codebooks"])
        layout = lay_out(_attributes(about["attributes"]))
        check_arrays(about, layout, arrays)
        targeted = len(layout.attributes) > 0
        parts = IndexParts(
            tables=tuple(
                _table(step, vocabulary, about["tables"][step - 1], arrays)
                for step, vocabulary in enumerate(codebooks, 1)
            ),
            codebooks=codebooks,
            end_token=about["end_token"],
            items=_item_ids(arrays),
            leaf_starts=arrays.get("leaf_items.starts"),
            leaf_numbers=arrays.get("leaf_items.numbers"),
            titles=text_column("titles", arrays) if "titles.offsets" in arrays else None,
            item_rules=_item_rules(layout, arrays) if targeted else None,
            matchers=_matchers(layout, arrays, about) if targeted else None,
        )
        return parts, (about["fingerprint"], about["sid_fingerprint"]), about["leaves"]
    except KeyError as error:
        raise IndexFileError(f"{path}: {error} is missing; build the index again.") from error
    except (ValueError, TypeError, IndexError, OverflowError, pa.ArrowException) as error:
        raise IndexFileError(
            f"{path}: no index of this format: {str(error).rstrip('.')}; build it again."
        ) from error


def _attributes(entries: Any) -> list[Attribute]:
    """The declared attributes; never those of a file that the description would name."""
    if not isinstance(entries, list):
        raise ValueError("attributes cannot be what the file says")
    return read_attributes(entries)


def _matchers(
    layout: RowLayout, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]
) -> Matchers:
    partitions = partitions_of(about["partitions"], len(about["codebooks"]))
    return Matchers.from_arrays(layout, arrays, len(about["codebooks"]), partitions)


def _item_ids(arrays: Mapping[str, NDArray[Any]]) -> ItemIds:
    items = arrays.get("items")
    if items is None:
        return ItemIds(text_column("items", arrays))
    return ItemIds.numbered(items)


def _about_table(table: StepTable) -> dict[str, Any]:
    """What the arrays of a table do not say."""
    return {
        "rows": table.rows,
        "entries": table.entries,
        "widest": table.widest,
        "block": table.starts.block,
        "gap": table.starts.gap,
        "starts": dict(table.starts.candidates),
    }


def _table(
    step: int, vocabulary: int, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> StepTable:
    prefix = f"table.{step}."
    own = {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
    starts = RowStarts(
        about["rows"],
        about["entries"],
        plain=own.get("starts"),
        bits=own.get("start_bits"),
        samples=own.get("start_samples"),
        exceptions=own.get("start_exceptions"),
        block=about["block"],
        gap=about["gap"],
        candidates=about["starts"],
    )
    return StepTable(
        step,
        vocabulary,
        starts,
        tokens=own.get("tokens"),
        packed=own.get("packed"),
        bitmap=own.get("bitmap"),
        ranks=own.get("ranks"),
        widest=about["widest"],
    )


def _item_rules(layout: RowLayout, arrays: Mapping[str, NDArray[Any]]) -> ItemRules:
    forms = [
        text_column(f"rules.bloom.{place}.forms", arrays) for place in range(len(layout.blooms))
    ]
    return ItemRules.from_arrays(layout, arrays, forms)
