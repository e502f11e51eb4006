"""What an index says of its sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beamsieve.index.tables import StepTable, token_candidates

if TYPE_CHECKING:
    from beamsieve.index.index import Index


def statistics(index: Index) -> Mapping[str, Any]:
    """Sizes, as plain numbers and strings: of the whole, and per table under "tables"."""
    targeting = {}
    if index.matchers is not None:
        targeting = {
            "attributes": [attribute.as_dict() for attribute in index.row_layout.attributes],
            "matchers": index.matchers.stats(),
        }
    return {
        "length": index.length,
        "codebooks": list(index.codebooks),
        "end_token": index.end_token,
        "sids": index.leaf_count,
        "items": len(index.items),
        "tables": [_of_table(table) for table in index.tables],
        "device_bytes": index.device_bytes,
        "host_bytes": index.host_bytes,
        "fingerprint": index.fingerprint,
        **targeting,
    }


def _of_table(table: StepTable) -> dict[str, Any]:
    return {
        "step": table.step,
        "vocabulary": table.vocabulary,
        "rows": table.rows,
        "entries": table.entries,
        "widest": table.widest,
        "layout": table.layout,
        "bytes": table.nbytes,
        "starts": {
            "kind": table.starts.name,
            "bytes": table.starts.nbytes,
            "candidates": dict(table.starts.candidates),
        },
        "tokens": {
            "kind": table.token_kind,
            "bytes": table.nbytes - table.starts.nbytes,
            "candidates": token_candidates(table.rows, table.entries, table.vocabulary),
        },
    }
