"""Two runs of the matrix, row by row: how much longer or shorter each takes now.

    beamsieve bench compare old.json new.json
    beamsieve bench compare old.json new.json --against unconstrained

A ratio is new over old: below 1 is faster. Its spread is what the quantiles leave open: from the
new p20 over the old p80 to the new p80 over the old p20. A row counts as changed only where that
spread leaves 1 out. ``--against`` divides every time by that of a baseline of the same run and cell
first, whose spread counts too, so that two machines of different speed can be compared at all. This
is a report: it never fails because something is slower.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from beamsieve.errors import BeamsieveError, InputError
from beamsieve_bench.console import BAD_ARGUMENTS, OneLineParser, complain
from beamsieve_bench.matrix_contestants import BASELINES
from beamsieve_bench.matrix_rows import Row, Run

SAME_MACHINE = ("device_name", "threads", "cores")


@dataclass(frozen=True)
class Change:
    """One row of both runs.

    Attributes:
        contestant: who.
        cell: the shape, as one reads it.
        old: milliseconds, or multiples of the baseline's.
        new: likewise.
        ratio: new over old.
        low: the least ratio that the quantiles allow.
        high: the largest.
        verdict: "faster", "slower" or "same".
    """

    contestant: str
    cell: str
    old: float
    new: float
    ratio: float
    low: float
    high: float
    verdict: str


def compare(old: Run, new: Run, against: str | None = None) -> list[Change]:
    """The rows that both runs have.

    Raises:
        InputError: there are none.
    """
    before = {row.key: row for row in old.rows}
    changes = []
    for row in new.rows:
        earlier = before.get(row.key)
        if earlier is None or row.contestant == against:
            continue
        first, second = _yard(old, earlier, against), _yard(new, row, against)
        if first is not None and second is not None:
            changes.append(_change(earlier, row, first, second))
    if not changes:
        raise InputError(
            "The two runs share no row, so there is nothing to compare; give both the same "
            "backends, workloads and shapes"
            + (f", and the baseline {against!r}." if against else ".")
        )
    return changes


Quantiles = tuple[float, float, float]


def _yard(run: Run, row: Row, against: str | None) -> Quantiles | None:
    """What this row's times are divided by; None where the baseline did not run in its cell."""
    if against is None:
        return (1.0, 1.0, 1.0)
    place = (row.workload, row.batch, row.width, row.hidden, row.dtype)
    for other in run.rows:
        if other.contestant == against and place == (
            other.workload,
            other.batch,
            other.width,
            other.hidden,
            other.dtype,
        ):
            return other.p20, other.p50, other.p80
    return None


def _change(old: Row, new: Row, old_yard: Quantiles, new_yard: Quantiles) -> Change:
    low = new.p20 / old.p80 * old_yard[0] / new_yard[2]
    high = new.p80 / old.p20 * old_yard[2] / new_yard[0]
    verdict = "faster" if high < 1 else "slower" if low > 1 else "same"
    share = "" if new.share is None else f", share {new.share:g}"
    return Change(
        new.contestant,
        f"{new.workload} {new.batch}×{new.width} {new.dtype} {new.normalize}{share}",
        old.p50 / old_yard[1],
        new.p50 / new_yard[1],
        new.p50 / old.p50 * old_yard[1] / new_yard[1],
        low,
        high,
        verdict,
    )


def differences(old: Run, new: Run) -> list[str]:
    """In what the machines differ, one sentence each."""
    return [
        f"{name} was {old.machine.get(name)} and is {new.machine.get(name)}"
        for name in SAME_MACHINE
        if old.machine.get(name) != new.machine.get(name)
    ]


def show(old: Run, new: Run, changes: Sequence[Change], against: str | None) -> str:
    """The report as text."""
    unit = f"× {against}" if against else "ms"
    lines = [f"{old.machine['commit']} → {new.machine['commit']}, {unit}; below 1 is faster"]
    lines += [f"note: {line}; ratios of milliseconds mean little" for line in differences(old, new)]
    lines.append(f"{'':64}{'old':>9}{'new':>9}{'ratio':>8}  spread")
    for one in changes:
        lines.append(
            f"{one.contestant:16} {one.cell:46} {one.old:9.3f}{one.new:9.3f}{one.ratio:8.2f}"
            f"  {one.low:.2f} to {one.high:.2f}  {'' if one.verdict == 'same' else one.verdict}"
        )
    counts = {
        name: sum(one.verdict == name for one in changes) for name in ("faster", "same", "slower")
    }
    lines.append(", ".join(f"{count} {name}" for name, count in counts.items()))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print; 2 where the runs cannot be read or share nothing."""
    asked = OneLineParser(
        prog="beamsieve bench compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    asked.add_argument("old", type=Path, help="JSON of 'beamsieve bench matrix'")
    asked.add_argument("new", type=Path, help="likewise")
    asked.add_argument("--against", choices=BASELINES, help="divide by this baseline's time")
    asked.add_argument("--json", action="store_true", help="print one JSON object")
    options = asked.parse_args(arguments)
    try:
        old, new = Run.read(options.old), Run.read(options.new)
        changes = compare(old, new, options.against)
    except BeamsieveError as error:
        complain(str(error))
        return BAD_ARGUMENTS
    if options.json:
        found: dict[str, Any] = {"differences": differences(old, new)}
        print(json.dumps(found | {"changes": [asdict(one) for one in changes]}))
    else:
        print(show(old, new, changes, options.against))
    return 0


if __name__ == "__main__":
    sys.exit(main())
