"""Filter, project and select: the whole search without its model, beside score-first decodes.

    python -m beamsieve_bench.stage --backend torch:cpu
    beamsieve bench stage --backend torch:cpu --json

"score-first trie" is the published decode (``published_trie``); "in place" and "flat" compute the
same beams in less time: masking in place, and without a top-k per beam. "unconstrained" filters
nothing: a yardstick, no competitor.

Every contestant gets the same random hidden states and heads, in turns, round by round, so that
whatever else the machine does meets all of them. Nothing is reported before the results are right:
ours are held against the specification on a small catalog of the same kind, and, scoring first, on
the measured catalog against the baseline, which shares no code with us.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import beamsieve as bs
from beamsieve_bench.catalogs import WORKLOADS, Workload
from beamsieve_bench.console import BAD_ARGUMENTS, FAILED, OneLineParser, complain

DTYPES = ("bfloat16", "float16", "float32")


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    lines = [
        f"{result['items']:,} semantic IDs of {result['length']} levels, V {result['vocabulary']}, "
        f"{result['batch']} × {result['beams']} beams, hidden {result['hidden']}, "
        f"{result['dtype']}, {result['backend']}, threads: {result['threads']}",
        f"{'':28}{'median ms':>10}{'p20':>9}{'p80':>9}{'least':>9}{'ours is':>12}",
    ]
    for one in result["times"]:
        times = result["faster_than"].get(one["name"])
        faster = f"{times['by_median']:.2f} ×" if times else ""
        lines.append(
            f"{one['name']:28}{one['median']:10.2f}{one['p20']:9.2f}{one['p80']:9.2f}"
            f"{one['least']:9.2f}{faster:>12}"
        )
    steps = ", ".join(
        f"{number}: {projection} {times[projection]:.2f} ms"
        for number, (projection, times) in enumerate(
            zip(result["projections"], result["step_ms"], strict=True), 1
        )
    )
    lines.append(f"steps as warm_up measured them: {steps}")
    return "\n".join(lines)


def parser() -> OneLineParser:
    """The options of the stage benchmark."""
    parser = OneLineParser(prog="beamsieve bench stage", description=__doc__)
    add = parser.add_argument
    add("--backend", default="torch:cpu", help="config string (default: %(default)s)")
    add("--workload", default="S1", choices=sorted(WORKLOADS),
        help="a named catalog (default: %(default)s)")  # fmt: skip
    add("--items", type=int, help="in place of the workload's number of semantic IDs")
    add("--vocabulary", type=int, help="in place of the workload's tokens per level")
    add("--length", type=int, help="in place of the workload's levels")
    add("--batch", type=int, default=8, help="requests (default: %(default)s)")
    add("--beams", type=int, default=128, help="beams per request (default: %(default)s)")
    add("--hidden", type=int, default=256, help="size of hidden states (default: %(default)s)")
    add("--dtype", default="float32", choices=DTYPES,
        help="of hidden states and heads (default: %(default)s)")  # fmt: skip
    add("--normalize", default="catalog", choices=("catalog", "eligible", "all"),
        help="over which tokens probabilities sum to one (default: %(default)s)")  # fmt: skip
    add("--rounds", type=int, default=21, help="how often all are measured (default: %(default)s)")
    add("--threads", type=int, help="PyTorch's threads on the CPU")
    add("--json", action="store_true", help="print one JSON object")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0, 1 when it failed, 2 for bad arguments."""
    asked = parser()
    options = asked.parse_args(arguments)
    for name in ("items", "vocabulary", "length", "batch", "beams", "hidden", "rounds", "threads"):
        least = 2 if name == "length" else 1  # the baseline begins with a pair of levels
        value = getattr(options, name)
        if value is not None and value < least:
            asked.error(f"--{name} is {value}; it must be at least {least}")
    changed = {name: getattr(options, name) for name in Workload._fields}
    options.workload = WORKLOADS[options.workload]._replace(
        **{name: value for name, value in changed.items() if value is not None}
    )
    why = options.workload.too_large()
    if why:
        asked.error(why)
    # Only now: PyTorch takes seconds to import, which a mistyped option should not cost.
    from beamsieve_bench.gate import GateError
    from beamsieve_bench.stage_search import measure

    try:
        result = measure(options)
    except (bs.BeamsieveError, GateError) as error:
        complain(str(error))
        return BAD_ARGUMENTS if isinstance(error, bs.BackendError) else FAILED
    print(json.dumps(result, indent=2) if options.json else show(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
