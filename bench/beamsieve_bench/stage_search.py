"""What ``beamsieve bench stage`` measures: random inputs, our search of them, turns by rounds."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import beamsieve as bs
from beamsieve.registry import open_backend
from beamsieve_bench.baselines import Decoded, ScoreFirstTrie, Unconstrained
from beamsieve_bench.catalogs import Workload, skewed_sids
from beamsieve_bench.console import say, show_progress, warn_of_load
from beamsieve_bench.gate import agrees_with_baseline, agrees_with_specification
from beamsieve_bench.published_trie import PublishedTrie

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
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    backend, _ = open_backend(options.backend)  # one that is not there is known before all work
    if backend.device == "cpu":
        warn_of_load(torch.get_num_threads(), "--threads 1 suffers least.")
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
