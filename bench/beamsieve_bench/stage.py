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

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

import beamsieve as bs
from beamsieve.registry import open_backend
from beamsieve_bench.baselines import Decoded, ScoreFirstTrie, Unconstrained
from beamsieve_bench.catalogs import WORKLOADS, Workload, skewed_sids
from beamsieve_bench.gate import GateError, agrees_with_baseline, agrees_with_specification
from beamsieve_bench.published_trie import PublishedTrie

FAILED, BAD_ARGUMENTS = 1, 2
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Times:
    """One contestant's milliseconds per search of the whole batch.

    Attributes:
        name: the contestant.
        median: of all rounds.
        p20: one round in five was quicker.
        p80: one round in five was slower.
        least: the quickest round.
    """

    name: str
    median: float
    p20: float
    p80: float
    least: float

    @classmethod
    def of(cls, name: str, milliseconds: Sequence[float]) -> Times:
        """From the rounds of one contestant."""
        p20, median, p80 = np.quantile(milliseconds, (0.2, 0.5, 0.8))
        return cls(name, float(median), float(p20), float(p80), min(milliseconds))


@dataclass(frozen=True)
class Inputs:
    """What the model would say: hidden states [B, M_t, d] and heads [V, d], step by step."""

    hidden: list[Tensor]
    heads: list[Tensor]
    widths: list[int]

    @classmethod
    def draw(
        cls,
        workload: Workload,
        batch: int,
        beams: int,
        size: int,
        dtype: torch.dtype,
        device: torch.device,
        seed: int = 0,
    ) -> Inputs:
        """Normal hidden states and heads that give logits of deviation 1."""
        draw = torch.Generator().manual_seed(seed)
        hidden, heads = [], []
        for step in range(workload.length):
            places = beams if step else 1
            states = torch.randn(batch, places, size, generator=draw)
            head = torch.randn(workload.vocabulary, size, generator=draw) / size**0.5
            hidden.append(states.to(device=device, dtype=dtype))
            heads.append(head.to(device=device, dtype=dtype))
        return cls(hidden, heads, [beams] * workload.length)


def search(engine: bs.Engine, inputs: Inputs) -> bs.Beams:
    """One search of ours."""
    return engine.search(
        lambda step, beams: (inputs.hidden[step - 1], inputs.heads[step - 1]),
        inputs.widths,
        batch=len(inputs.hidden[0]),
    )


def interleaved(
    contestants: dict[str, Callable[[], Any]], rounds: int, synchronize: Callable[[], None]
) -> list[Times]:
    """Run all contestants in every round; the first round only warms up.

    Each runs twice in a row, and the second is timed: it finds its own data in the caches, and not
    the threads of the contestant before, which keep a core busy for a while as they wait for more.
    """
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, run in contestants.items():
            run()
            synchronize()
            began = time.perf_counter()
            run()
            synchronize()
            if turn:
                taken[name].append((time.perf_counter() - began) * 1e3)
        show_progress(turn, rounds)
    return [Times.of(name, milliseconds) for name, milliseconds in taken.items()]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The whole measurement: catalog, gate, plan, rounds."""
    workload: Workload = options.workload
    open_backend(options.backend)  # one that is not there is known before the catalog is drawn
    say(f"drawing {workload.items:,} semantic IDs")
    sids = skewed_sids(workload)
    catalog = bs.Catalog.from_arrays(sids, codebooks=[workload.vocabulary] * workload.length)
    say("building the index")
    index = bs.Index.build(catalog)
    engine = bs.Engine(index, backend=options.backend, normalize=options.normalize)
    device = torch.device(engine.device)
    dtype = DTYPES[options.dtype]
    inputs = Inputs.draw(workload, options.batch, options.beams, options.hidden, dtype, device)
    say("building the baselines")
    trie = ScoreFirstTrie(sids, workload.vocabulary, device, options.beams)
    published, flat = PublishedTrie(trie), trie.without_limit()
    free = Unconstrained()

    def decode(with_: ScoreFirstTrie | PublishedTrie | Unconstrained) -> Decoded:
        return with_.decode(inputs.hidden, inputs.heads, inputs.widths)

    say("checking the results")
    gate = {
        "specification": agrees_with_specification(options.backend, options.normalize, device),
        "baseline": agrees_with_baseline(options.backend, index, inputs, trie),
    }
    say("warming up, which compiles steps the first time")
    plan = engine.warm_up(options.batch, inputs.widths, inputs.heads)
    times = interleaved(
        {
            "beamsieve": lambda: search(engine, inputs),
            "score-first trie": lambda: decode(published),
            "score-first trie, in place": lambda: decode(trie),
            "score-first trie, flat": lambda: decode(flat),
            "unconstrained": lambda: decode(free),
        },
        options.rounds,
        torch.cuda.synchronize if device.type == "cuda" else lambda: None,
    )
    ours = times[0]
    return {
        "backend": engine.backend,
        "device": plan.device_name,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        **workload._asdict(),
        "batch": options.batch,
        "beams": options.beams,
        "hidden": options.hidden,
        "dtype": options.dtype,
        "normalize": options.normalize,
        "rounds": options.rounds,
        "gate": gate,
        "projections": list(plan.steps),
        "step_ms": [dict(step) for step in plan.milliseconds],
        "times": [asdict(one) for one in times],
        "faster_than": {
            other.name: {
                "by_median": other.median / ours.median,
                "by_least": other.least / ours.least,
            }
            for other in times[1:]
        },
        "index_bytes": index.device_bytes,
        "baseline_bytes": trie.nbytes,
    }


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


def say(what: str) -> None:
    """Progress, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{what} …", end="", file=sys.stderr, flush=True)


def show_progress(turn: int, rounds: int) -> None:
    """Progress of the rounds."""
    say(f"round {turn} of {rounds}")
    if turn == rounds and sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


class OneLineParser(argparse.ArgumentParser):
    """Says in one line what is wrong with the arguments, as all commands do.

    Its description is shown as it is written: module docstrings have paragraphs and commands.
    """

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        complain(f"{message} (see '{self.prog} --help').")
        sys.exit(BAD_ARGUMENTS)


def complain(message: str) -> None:
    """Print a message as one line on stderr."""
    print(f"beamsieve: {' '.join(message.split())}", file=sys.stderr)


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
    add("--dtype", default="float32", choices=sorted(DTYPES),
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
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    try:
        result = measure(options)
    except (bs.BeamsieveError, GateError) as error:
        complain(str(error))
        return BAD_ARGUMENTS if isinstance(error, bs.BackendError) else FAILED
    print(json.dumps(result, indent=2) if options.json else show(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
