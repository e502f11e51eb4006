"""What ``beamsieve inspect`` shows people of an index and of a catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from beamsieve.cli.output import print_pairs, print_table, readable, readable_bytes


def show_index(path: Path, stats: dict[str, Any]) -> None:
    """Print what ``index.stats()`` says."""
    print_pairs(
        {
            "index": path,
            "semantic IDs": stats["sids"],
            "items": stats["items"],
            "end token": stats["end_token"],
            "on the device": readable_bytes(stats["device_bytes"]),
            "on the host": readable_bytes(stats["host_bytes"]),
            "fingerprint": stats["fingerprint"],
        }
    )
    print_table(
        ("step", "codebook", "rows", "entries", "widest", "layout", "bytes"),
        [
            (
                *(table[name] for name in ("step", "vocabulary", "rows", "entries", "widest")),
                table["layout"],
                readable_bytes(table["bytes"]),
            )
            for table in stats["tables"]
        ],
    )
    _show_choices("row starts", "starts", stats["tables"])
    _show_choices("tokens", "tokens", stats["tables"])
    if "matchers" in stats:
        names = list(stats["matchers"][0]["distinct_rows"])
        print_table(
            (
                *("step", "matchers"),
                *(f"{name}: {what}" for name in names for what in ("distinct", "fill")),
                *("bytes", "not shared"),
            ),
            [
                (
                    *(step["step"], step["parts"]),
                    *(step[what][name] for name in names for what in ("distinct_rows", "fill")),
                    readable_bytes(step["bytes"]),
                    readable_bytes(step["bytes_before"]),
                )
                for step in stats["matchers"]
            ],
        )


def _show_choices(title: str, part: str, tables: list[dict[str, Any]]) -> None:
    """What each table holds one of its parts as, and the bytes of every way to hold it."""
    every = {kind for table in tables for kind in table[part]["candidates"]}
    kinds = sorted(every, key=lambda kind: (kind.partition("/")[0], len(kind), kind))
    print_table(
        ("step", f"{title} held", *(f"as {kind}" for kind in kinds)),
        [
            (
                *(table["step"], table[part]["kind"]),
                *(
                    readable_bytes(table[part]["candidates"][kind])
                    if kind in table[part]["candidates"]
                    else "–"
                    for kind in kinds
                ),
            )
            for table in tables
        ],
    )


def show_catalog(report: dict[str, Any]) -> None:
    """Print what ``catalog.report`` says."""
    shared = report["collisions"]
    print_pairs(
        {
            "catalog": report["source"],
            "rows": report["rows"],
            "rows left out": sum(report["rejected"].values()),
            "items": report["items"],
            "semantic IDs": report["sids"],
            "repeated rows": report["duplicates"],
            "shared semantic IDs": f"{readable(shared['groups'])} (of {readable(shared['items'])} "
            f"items, at most {shared['largest']} on one)",
            "items with several": report["multi_path_items"],
            "tokens per semantic ID": ", ".join(
                f"{depth}: {readable(count)}" for depth, count in report["depths"].items()
            ),
            "tables, once built": readable_bytes(report["index_bytes"]["best"]),
        }
    )
    print_table(
        (
            *("level", "codebook", "used", "rows", "children: mean", "median", "p99", "max"),
            *("layout", "dense", "sparse"),
        ),
        [
            (
                *(level[name] for name in ("level", "codebook", "tokens_used", "rows")),
                *(level[f"{name}_children"] for name in ("mean", "median", "p99", "max")),
                level["layout"],
                *(readable_bytes(level["bytes"][layout]) for layout in ("dense", "sparse")),
            )
            for level in report["levels"]
        ],
    )
