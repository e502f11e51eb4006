"""Cross-attention: all beams of a request ask one context, and the fastest kernel answers.

Source: GRACE, section 4.1 and appendix B: beams become the queries of one sequence per request, so
keys and values are read once per request and tile, not once per beam.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from beamsieve.models.wide import laws

ContextKind = Literal["per_beam", "plain", "triton", "flash", "cudnn", "efficient"]
CONTEXT_KINDS: tuple[ContextKind, ...] = get_args(ContextKind)

Attend = Callable[[Tensor, Tensor, Tensor, "Tensor | None"], Tensor]

_LIBRARY = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
_CHOSEN: dict[tuple[object, ...], tuple[ContextKind, dict[str, float]]] = {}
_ONE_CHOICE = threading.Lock()


def context_attention(kind: ContextKind) -> Attend:
    """Queries [B, M, H, D], keys and values [B, C, H, D], lengths [B] or None to [B, M, H, D].

    ``per_beam`` is the generic layout; ``plain`` leaves the kernel to PyTorch; the others name one.
    """
    if kind == "per_beam":
        return laws.per_beam
    if kind == "plain":
        return laws.beam_as_query
    if kind == "triton":
        from beamsieve.models.wide import calls

        return calls.context
    backend = _LIBRARY[kind]

    def attend(queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
        with sdpa_kernel([backend]):
            return laws.beam_as_query(queries, keys, values, lengths)

    return attend


def fastest(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor | None, *, kernels: bool
) -> tuple[ContextKind, dict[str, float]]:
    """The fastest way on this GPU for these shapes, and the milliseconds of each that can serve.

    Each is timed as replays of a CUDA graph; a way that cannot serve the shapes has no time. What
    was found is kept for the process.

    Args:
        queries: as in :func:`context_attention`, as are the next three.
        keys: likewise.
        values: likewise.
        lengths: likewise.
        kernels: whether Triton's kernel may be taken.
    """
    key = (
        queries.device, queries.dtype, tuple(queries.shape), keys.shape[1], lengths is None, kernels
    )  # fmt: skip
    with _ONE_CHOICE:
        if key not in _CHOSEN:
            timed: dict[str, float] = {}
            for kind in CONTEXT_KINDS[1:]:
                if kind == "triton" and not kernels:
                    continue
                try:
                    timed[kind] = _milliseconds(kind, queries, keys, values, lengths)
                except RuntimeError:  # this kernel does not serve these shapes
                    continue
            best = min(timed, key=lambda name: timed[name])
            _CHOSEN[key] = next(kind for kind in CONTEXT_KINDS if kind == best), timed
        return _CHOSEN[key]


def _milliseconds(
    kind: ContextKind, queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor | None
) -> float:
    attend = context_attention(kind)
    with torch.cuda.device_of(queries):  # type: ignore[no-untyped-call]
        side = torch.cuda.Stream(queries.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(queries.device))
        with torch.cuda.stream(side):
            for _ in range(2):
                attend(queries, keys, values, lengths)
        torch.cuda.current_stream(queries.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            attend(queries, keys, values, lengths)
        times = []
        for _ in range(12):
            begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return float(statistics.median(times[2:]))
