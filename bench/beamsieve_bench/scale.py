"""The tables of docs/scale.md: bytes, time and memory from ten million semantic IDs to ten billion.

    python -m beamsieve_bench.scale docs/scale.md

rewrites what stands between the page's markers. Sizes follow from the layouts' own arithmetic over
the number of distinct prefixes that uniform semantic IDs have (skewed ones have fewer); seconds and
memory follow from the constants below, each of which says where it was measured.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from beamsieve.index.encode import bit_words
from beamsieve.index.starts import BLOCKS, starts_dtype
from beamsieve.index.tables import layout_bytes

SIZES = (10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000)
SHAPES = ((2048, 4), (512, 4), (8192, 3))
BEGIN, END = "<!-- made by beamsieve_bench.scale -->", "<!-- end -->"


@dataclass(frozen=True)
class Constants:
    """What was measured, and on what.

    Attributes:
        build_seconds: processor seconds per million semantic IDs, from unsorted rows of int32 to
            tables, catalog checks included: 10 million of four levels on one quiet core of a Xeon,
            12.2 million a second (bench/results/index).
        build_bytes: peak resident memory of a process per semantic ID: 100 million at once on 32
            threads, 2.57 times their rows of 16 bytes (bench/results/index).
        matcher_bytes: matchers on the device per semantic ID under full targeting: G1, 30 million
            semantic IDs, 294.6 MB (bench/results/cupy).
        gpu_bytes: memory of an H200 that is left for an index, with 20 GB for model and beams.
        host_to_device: bytes per second to an H200 out of pinned memory, over PCIe 5 x16; filling
            that memory from a file's pages takes two to six times as long (bench/results/index).
    """

    build_seconds: float = 0.082
    build_bytes: float = 41.0
    matcher_bytes: float = 9.8
    gpu_bytes: float = 120e9
    host_to_device: float = 54e9


CONSTANTS = Constants()


def prefixes(items: int, vocabulary: int, length: int) -> list[int]:
    """How many distinct prefixes of 1 … L tokens that many uniform semantic IDs have.

    The last number is ``items`` itself: semantic IDs are distinct.
    """
    found = []
    for depth in range(1, length + 1):
        places = float(vocabulary) ** depth
        found.append(min(items, round(-places * math.expm1(-items / places))))
    found[-1] = items
    return found


def start_bytes(rows: int, entries: int) -> int:
    """Bytes of the row starts in their smaller kind, without exceptions."""
    plain = (rows + 1) * starts_dtype(entries).itemsize
    words = bit_words(rows, entries, 0) * 8
    sampled = (words + -(-(rows + 1) // block) * starts_dtype(entries).itemsize for block in BLOCKS)
    return min(plain, *sampled)


def table_bytes(items: int, vocabulary: int, length: int) -> int:
    """Bytes of all tables on the device."""
    rows, total = 1, 0
    for entries in prefixes(items, vocabulary, length):
        sizes = layout_bytes(rows, entries, vocabulary, start_bytes(rows, entries))
        total += min(sizes.values())
        rows = entries
    return total


def readable(value: float) -> str:
    """Three digits and a unit of thousands."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {unit}B"
    return f"{value:.3g} B"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours."""
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    if seconds >= 10:
        return f"{seconds:.0f} s"
    return f"{seconds:.2g} s" if seconds >= 0.1 else f"{seconds * 1e3:.2g} ms"


def tables() -> str:
    """Both tables as Markdown."""
    c = CONSTANTS
    lines = [
        "| semantic IDs | V × L | tables | per SID | with matchers | of one H200 |",
        "| ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for items in SIZES:
        for vocabulary, length in SHAPES:
            if vocabulary**length < items:
                continue
            size = table_bytes(items, vocabulary, length)
            whole = size + items * c.matcher_bytes
            lines.append(
                f"| {items:,} | {vocabulary} × {length} | {readable(size)} | {size / items:.2f} B "
                f"| {readable(whole)} | {whole / c.gpu_bytes:.1%} |"
            )
    lines += [
        "",
        "| semantic IDs | build, one core | peak memory of a build | copy to the device |",
        "| ---: | ---: | ---: | ---: |",
    ]
    for items in SIZES:
        seconds = items / 1e6 * c.build_seconds
        size = table_bytes(items, 2048, 4)
        lines.append(
            f"| {items:,} | {duration(seconds)} | {readable(items * c.build_bytes)} "
            f"| {duration(size / c.host_to_device)} |"
        )
    return "\n".join(lines)


def rewritten(page: str, made: str) -> str:
    """The page with new tables between its markers.

    Raises:
        ValueError: it has no markers.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"The page has no {BEGIN} … {END}.")
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite a page, or print the tables where none is named."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words:
        print(tables())
        return 0
    path = Path(words[0])
    path.write_text(rewritten(path.read_text("utf-8"), tables()), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
