"""Operations and bytes of one decode, kernel by kernel, counted from the shapes alone.

    python -m beamsieve_bench.wide_counts [--own in_place] [--no-pairs]

Operations are multiplications and additions of matrix products and of attention. Bytes are what
each kernel reads and writes once: weights and inputs, a cached key or value once per block, however
many rows ask for it. Nominal operations are those of the model, as GRACE counts them: every product
for every row; executed ones leave out what is looked up (``beamsieve.models.wide.opened``).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from beamsieve.models.wide.own import LOOKING_UP, OwnKind
from beamsieve_bench.wide_workload import GRACE, WideWorkload

BYTES = 2
"""Of a bfloat16 or float16 value."""


@dataclass(frozen=True)
class Pass:
    """Rows that go through all layers together.

    Attributes:
        rows: their number.
        tokens: t, the most that one of them attends to.
        blocks: rows of the passes before, whose keys and values they read.
        opened: whether the first layer is looked up as far as its cross-attention.
    """

    rows: int
    tokens: int
    blocks: int
    opened: bool


@dataclass
class Count:
    """Of one kind of kernel, over a whole decode."""

    launches: int = 0
    flop: float = 0.0
    bytes: float = 0.0

    def add(self, flop: float, values: float) -> None:
        """One more launch, of so many operations and values of BYTES each."""
        self.launches += 1
        self.flop += flop
        self.bytes += values * BYTES


def passes(
    workload: WideWorkload, widths: Sequence[int], own: OwnKind = "in_place", *, pairs: bool = True
) -> list[Pass]:
    """What a decode runs through its layers; ``in_place`` looks up, the other kinds do not."""
    batch, tabled = workload.batch, own in LOOKING_UP
    together = tabled and widths[0] >= workload.codebooks[0]
    found = [Pass(batch * (1 + workload.codebooks[0]), 2, 0, True)] if together else []
    before = sum(one.rows for one in found)
    for step in range(3 if together else 1, len(widths) + 1):
        rows = batch * (1 if step == 1 else widths[step - 2])
        opened = tabled and (step <= 2 or (step == 3 and pairs))
        found.append(Pass(rows, step, before, opened))
        before += rows
    return found


def counts(
    workload: WideWorkload, widths: Sequence[int], own: OwnKind = "in_place", *, pairs: bool = True
) -> dict[str, Count]:
    """By kind of kernel."""
    c = workload.config
    d, wide, feed, tabled = c.width, c.inner, c.feed, own in LOOKING_UP
    found: dict[str, Count] = {}

    def product(name: str, rows: int, inner: int, outer: int, *, added: bool = False) -> None:
        values = rows * inner + inner * outer + rows * outer * (2 if added else 1)
        found.setdefault(name, Count()).add(2.0 * rows * inner * outer, values)

    def other(name: str, values: float, flop: float = 0.0) -> None:
        found.setdefault(name, Count()).add(flop, values)

    for one in passes(workload, widths, own, pairs=pairs):
        rows = one.rows
        for layer in range(c.layers):
            if layer == 0 and one.opened:
                other("rows looked up", 2 * rows * (d + wide))
            else:
                if layer > 0 or not tabled:
                    other("norm", 2 * rows * d)
                    product("queries, keys, values", rows, d, 3 * wide)
                read = 0 if layer == 0 and tabled else 2 * wide * one.blocks
                written = 0 if tabled else 2 * wide * rows
                other(
                    "self-attention", 4 * wide * rows + read + written,
                    4.0 * wide * rows * one.tokens,
                )  # fmt: skip
                product("self-attention out", rows, wide, d, added=True)
                other("norm", 2 * rows * d)
                product("cross-attention query", rows, d, wide)
            kept = 2 * wide * workload.columns
            other(
                "cross-attention", 2 * wide * rows + kept * workload.batch, 2.0 * kept * rows
            )  # fmt: skip
            product("cross-attention out", rows, wide, d, added=True)
            other("norm", 2 * rows * d)
            product("feed in", rows, d, feed)
            product("feed out", rows, feed, d, added=True)
        other("norm", 2 * rows * d)
    for step, size in enumerate(workload.codebooks):
        product("head", workload.batch * (1 if step == 0 else widths[step - 1]), d, size)
    return found


def executed_tflop(
    workload: WideWorkload, widths: Sequence[int], own: OwnKind, *, pairs: bool = True
) -> float:
    """Operations of the products that run, of one request; attention's own are left out, as
    ``WideWorkload.tflop_per_request`` leaves them out."""
    every = counts(workload, widths, own, pairs=pairs)
    products = [
        count.flop
        for name, count in every.items()
        if name not in ("self-attention", "cross-attention")
    ]
    return sum(products) / workload.batch / 1e12


def counts_table(every: dict[str, Count]) -> str:
    """As Markdown."""
    lines = [
        "| kernel | launches | TFLOP | GB |",
        "| --- | --- | --- | --- |",
    ]
    total = Count()
    for name, count in every.items():
        total.launches += count.launches
        total.flop += count.flop
        total.bytes += count.bytes
        flop = f"{count.flop / 1e12:.3f}" if count.flop else ""
        lines.append(f"| {name} | {count.launches} | {flop} | {count.bytes / 1e9:.2f} |")
    lines.append(
        f"| together | {total.launches} | {total.flop / 1e12:.3f} | {total.bytes / 1e9:.2f} |"
    )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the table of GRACE's size with dynamic widths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--own", default="in_place", choices=("in_place", "paged"))
    parser.add_argument("--no-pairs", action="store_true", help="without the table of pairs")
    given = parser.parse_args(arguments)
    own: OwnKind = "paged" if given.own == "paged" else "in_place"
    pairs = not given.no_pairs
    widths = GRACE.dynamic
    print(counts_table(counts(GRACE, widths, own, pairs=pairs)))
    nominal = GRACE.tflop_per_request(widths)
    run = executed_tflop(GRACE, widths, own, pairs=pairs)
    print(f"\nProducts of a request: {nominal:.4f} TFLOP nominal, {run:.4f} executed.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
