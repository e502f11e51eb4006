"""GRACE's decoder at its size, with random weights: what the wide-beam benchmarks measure.

Batch 16, 1024 beams, 16 heads of 128, width 1024, feed-forward 8192, 3 layers, four levels of 512
tokens, 128 context tokens, bfloat16. The widths and numbers of heads are GRACE's (section 2.3); the
width and the feed-forward net are not published and were chosen so that a row costs what theirs
does, 177 MFLOP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from beamsieve.models.wide.config import WideConfig
from beamsieve.models.wide.model import Wide
from beamsieve.models.wide.opened import PAIR_BYTES
from beamsieve.models.wide.products import ProductKind
from beamsieve.models.wide.weights import WideWeights, weights_of

PEAK_TFLOPS = 989.0
"""Of dense bfloat16 products, by the datasheets of GH200 and H200: what MFU is a share of."""


@dataclass(frozen=True)
class WideWorkload:
    """One shape of decode."""

    batch: int
    config: WideConfig
    codebooks: tuple[int, ...]
    columns: int
    """Context tokens."""
    fixed: tuple[int, ...]
    """Beams kept per step with one width for all."""
    dynamic: tuple[int, ...]
    """Beams kept per step with widths of their own."""

    def rows(self, widths: Sequence[int]) -> int:
        """Rows computed in one decode."""
        return self.batch * (1 + sum(widths[:-1]))

    def tflop_per_request(self, widths: Sequence[int]) -> float:
        """Operations of the matrix products of one request, attention's own left out."""
        d, inner, c = self.config.width, self.config.inner, self.config
        layer = 3 * d * inner + 3 * inner * d + 2 * d * c.feed
        per_row = c.layers * layer + d * self.codebooks[0]
        return 2 * per_row * (1 + sum(widths[:-1])) / 1e12


GRACE = WideWorkload(
    batch=16,
    config=WideConfig(
        width=1024, layers=3, heads=16, head_width=128, feed=8192, encoder_heads=8, longest=127
    ),
    codebooks=(512,) * 4,
    columns=128,
    fixed=(1024, 1024, 1024, 1024),
    dynamic=(512, 1024, 1024, 1024),
)
SMALL = WideWorkload(
    batch=2,
    config=WideConfig(width=32, layers=2, heads=2, head_width=64, feed=48, longest=7),
    codebooks=(12,) * 4,
    columns=8,
    fixed=(16, 16, 16, 16),
    dynamic=(12, 16, 16, 16),
)


@torch.no_grad()
def random_model(workload: WideWorkload, device: str, seed: int = 0) -> Wide:
    """A decoder whose hidden states have variance near 1 everywhere, so that no number is special.

    The encoder is left out of what is measured, and small.
    """
    torch.manual_seed(seed)
    model = Wide(workload.config, workload.codebooks).to(device).eval()
    for module in (*model.layers, *model.heads):
        for linear in module.modules():
            if isinstance(linear, torch.nn.Linear):
                linear.weight.normal_(std=linear.in_features**-0.5)
    return model


def weights(
    workload: WideWorkload,
    device: str,
    dtype: torch.dtype = torch.bfloat16,
    *,
    products: ProductKind = "own",
    kernels: bool = True,
    table_bytes: int = PAIR_BYTES,
) -> WideWeights:
    """The same weights each time, and the tables that a ``WideDecoder`` would have."""
    return weights_of(
        random_model(workload, device), dtype, products=products, kernels=kernels,
        table_bytes=table_bytes if kernels else 0,
    )  # fmt: skip


def contexts(workload: WideWorkload, device: str, seed: int = 1) -> torch.Tensor:
    """Context tokens [B, C, d] of random numbers."""
    draw = torch.Generator(device="cpu").manual_seed(seed)
    shape = (workload.batch, workload.columns, workload.config.width)
    return torch.randn(shape, generator=draw).to(device)
