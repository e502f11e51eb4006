"""GRACE's ablation ladder, row by row, as replays of one CUDA graph per decode.

    python -m beamsieve_bench.wide_ladder --out FOLDER [--rows 1,2,…] [--replays 300] [--settle 8]

The rows decode without a catalog: every token may follow every prefix (``wide_free``). A row is
timed only after its graph gave, bit for bit, what the same decode gives step by step, and after its
hidden states were compared with a decode of plain PyTorch in float32. With ``--settle``, a row's
queue goes on behind its first replays until it keeps still, and is timed again (``wide_timing``).
Rows that are not run keep their place in the file.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from beamsieve.models.wide import laws
from beamsieve.models.wide.context import Attend
from beamsieve.models.wide.own import OwnKind
from beamsieve.models.wide.products import ProductKind
from beamsieve.models.wide.scorer import ContextChoice, WideScorer
from beamsieve.models.wide.weights import WideWeights
from beamsieve_bench.gpu_timing import captured
from beamsieve_bench.wide_check import GateError, check_all
from beamsieve_bench.wide_counts import executed_tflop
from beamsieve_bench.wide_free import FreeBeams, first_beams, free_search, free_step
from beamsieve_bench.wide_timing import Settled, Times, paced, timed
from beamsieve_bench.wide_workload import (
    GRACE,
    PEAK_TFLOPS,
    SMALL,
    WideWorkload,
    contexts,
    weights,
)


@dataclass(frozen=True)
class Row:
    """One rung."""

    name: str
    own: OwnKind
    context: ContextChoice
    dynamic: bool
    products: ProductKind = "own"
    dtype: torch.dtype = torch.bfloat16
    pairs: bool = True
    """Whether the first layer is looked up behind two tokens, too, where it is looked up."""


ROWS = (
    Row("generic SDPA", "generic", "per_beam", False),
    Row("+ beam as query", "generic", "auto", False),
    Row("+ coalesced self-attention", "coalesced", "auto", False),
    Row("+ fused", "fused", "auto", False),
    Row("+ paged", "paged", "auto", False),
    Row("+ dynamic widths", "paged", "auto", True),
    Row("+ in place, first layer by token", "in_place", "auto", True, pairs=False),
    Row("+ by two tokens", "in_place", "auto", True),
    Row("float8 products", "in_place", "auto", True, "float8"),
    Row("float16", "in_place", "auto", True, "own", torch.float16),
)
SETTLE = "time a row's queue once more when it has settled, for which it has so many seconds"
HIDDEN_TOLERANCE = {"own": 0.03, "float8": 0.15}


def with_kept_copies() -> Attend:
    """The generic layout, each row's copy of its context made once and kept, as a cache would."""
    copies: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}

    def attend(
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        lengths: torch.Tensor | None,
    ) -> torch.Tensor:
        batch, beams, heads, width = queries.shape
        if lengths is not None:
            return laws.per_beam(queries, keys, values, lengths)
        known = (keys.data_ptr(), beams)
        if known not in copies:
            made = [kept.transpose(1, 2).repeat_interleave(beams, 0) for kept in (keys, values)]
            copies[known] = (made[0], made[1])
        mixed = torch.nn.functional.scaled_dot_product_attention(
            queries.reshape(batch * beams, heads, 1, width), *copies[known]
        )
        return mixed.reshape(queries.shape)

    return attend


def scorer_of(workload: WideWorkload, row: Row, made: WideWeights) -> WideScorer:
    """The row's decoder, with the benchmark's contexts in it."""
    score = WideScorer(
        made if row.pairs else replace(made, pairs=None),
        workload.batch,
        workload.dynamic if row.dynamic else workload.fixed,
        workload.columns,
        lengths=False,
        own=row.own,
        context=with_kept_copies() if row.context == "per_beam" else row.context,
    )
    score.load(contexts(workload, str(made.device)))
    return score


@torch.no_grad()
def hidden_error(workload: WideWorkload, score: WideScorer, plain: WideScorer) -> float:
    """The largest difference of hidden states, step by step along the same beams.

    The plain decoder follows the row's own beams, for the first requests alone.
    """
    few = plain.batch
    widths = score.widths
    beams = first_beams(score.batch, str(score.weights.device))
    worst = 0.0
    for step, width in enumerate(widths, 1):
        hidden, head = score(step, beams)
        part = FreeBeams(beams.tokens[:few], beams.scores[:few], beams.parents[:few])
        expected, _ = plain(step, part)
        live = torch.isfinite(part.scores)
        wrong = (hidden[:few][live].float() - expected[live].float()).norm() / expected[live].norm()
        worst = max(worst, float(wrong))
        beams = free_step(beams, hidden, head, width)
    return worst


def run_row(
    workload: WideWorkload,
    row: Row,
    made: WideWeights,
    exact: WideWeights,
    replays: int,
    every: float = 0.0,
    settle: float = 0.0,
) -> dict[str, Any]:
    """Gate and times of one rung.

    Raises:
        GateError: its hidden states are not plain float32's, or its graph's beams not the steps'.
    """
    score = scorer_of(workload, row, made)
    widths = score.widths
    plain = WideScorer(
        exact, min(2, workload.batch), widths, workload.columns, lengths=False, own="plain",
        context="plain",
    )  # fmt: skip
    plain.load(contexts(workload, str(exact.device))[: plain.batch])
    error = hidden_error(workload, score, plain)
    if not error <= HIDDEN_TOLERANCE[row.products]:
        raise GateError(f"{row.name}: hidden states differ from plain float32 by {error:.2e}")
    del plain
    kept: list[FreeBeams] = []
    graph = captured(lambda: kept.append(free_search(score, widths)), 2)
    graph.replay()
    eager = free_search(score, widths)
    torch.cuda.synchronize()
    for name in ("tokens", "scores", "parents"):
        if not torch.equal(getattr(kept[-1], name), getattr(eager, name)):
            raise GateError(f"{row.name}: {name} of the graph and of the steps differ")
    times, settled = timed(graph.replay, replays, settle)
    return {
        "name": row.name,
        "hidden_error": error,
        "graph_equals_steps": True,
        "taken": score.taken,
        "pairs": score.weights.pairs is not None and row.own == "in_place",
        **figures(workload, widths, times, executed_by(workload, score), settled),
        **paced(graph.replay, every),
    }


def executed_by(workload: WideWorkload, score: WideScorer) -> float:
    """Operations of the products that this decoder runs for one request, in TFLOP."""
    pairs = score.weights.pairs is not None
    return executed_tflop(workload, score.widths, score.own, pairs=pairs)


def figures(
    workload: WideWorkload,
    widths: tuple[int, ...],
    times: Times,
    executed: float,
    settled: Settled | None = None,
) -> dict[str, Any]:
    """Times, and two shares of the chip's peak: what the model's nominal operations make, as GRACE
    counts, and what those make that are executed and not looked up. Both again when settled."""
    nominal = workload.tflop_per_request(widths)

    def shares(mean: float) -> dict[str, float]:
        share = workload.batch / mean * 1e3 / PEAK_TFLOPS
        return {"mfu": nominal * share, "executed_mfu": executed * share}

    later = {}
    if settled is not None:
        later = {"settled": settled.as_dict() | shares(settled.times.mean)}
    return {
        "widths": list(widths),
        "tflop_per_request": nominal,
        "executed_tflop_per_request": executed,
        **times.as_dict(),
        **shares(times.mean),
        **later,
    }


def _row(found: dict[str, Any]) -> int:
    return int(found["row"])


def _rows_before(path: Path, wanted: Sequence[int]) -> list[dict[str, Any]]:
    """Rows that a run before left in the file, and this one does not make again."""
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [row for row in rows if row["row"] not in wanted]


def main(arguments: list[str] | None = None) -> int:
    """Gate, then row by row; one JSON file, rewritten after every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=Path, help="folder for wide_ladder.json")
    parser.add_argument(
        "--rows", default="", help="numbers from 1 in the order to run them; all when empty"
    )
    parser.add_argument("--replays", type=int, default=300)
    parser.add_argument(
        "--every",
        type=float,
        default=0.0,
        help="time rows once more, with a start every so many ms",
    )
    parser.add_argument("--settle", type=float, default=0.0, help=SETTLE)
    parser.add_argument("--seconds", type=float, default=600, help="begin no row after this")
    parser.add_argument("--small", action="store_true", help="a tiny size, to try the script")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    device = "cuda"
    workload = SMALL if given.small else GRACE
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "wide_ladder.json"
    wanted = [int(number) for number in given.rows.split(",") if number]
    wanted = wanted or list(range(1, len(ROWS) + 1))
    outcome: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "gate": check_all(workload, device, torch.bfloat16),
        "rows": _rows_before(path, wanted),
    }
    made: dict[tuple[ProductKind, torch.dtype], WideWeights] = {}
    exact = weights(workload, device, torch.float32, kernels=False)
    for number in wanted:
        row = ROWS[number - 1]
        if time.monotonic() - began > given.seconds:
            break
        try:
            kind = row.products, row.dtype
            if kind not in made:
                made[kind] = weights(workload, device, row.dtype, products=row.products)
            found = run_row(
                workload, row, made[kind], exact, given.replays, given.every, given.settle
            )
        except (RuntimeError, GateError) as error:
            found = {"name": row.name, "failed": str(error).splitlines()[0]}
        outcome["rows"] = sorted([*outcome["rows"], {"row": number, **found}], key=_row)
        print(json.dumps({"row": number, **found}), flush=True)
        text = json.dumps(outcome, indent=1)
        path.write_text(text + "\n", encoding="utf-8")
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
