"""Every instance of a kernel template that a search can need."""

from __future__ import annotations

from itertools import product

from beamsieve_backends.cupy_raw.arguments import CUDA_TYPES
from beamsieve_backends.cupy_raw.sources import expression

_TRUTH = ("true", "false")
_PARAMETERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "score_rows": (tuple(CUDA_TYPES.values()), _TRUTH),
    "multiply_row": (tuple(CUDA_TYPES.values()),),
    "choose_row": (tuple(CUDA_TYPES.values()), _TRUTH),
    "whole_row": (tuple(CUDA_TYPES.values()), _TRUTH),
    "fused_rows": (tuple(CUDA_TYPES.values()),),
    "score_tiles": (tuple(CUDA_TYPES.values()),),
    "open_tiles": (tuple(CUDA_TYPES.values()),),
    "pool_tiles": (tuple(CUDA_TYPES.values()),),
    "rank_tiles": (tuple(CUDA_TYPES.values()),),
    "key_tiles": (),
    "reopen_tiles": (tuple(CUDA_TYPES.values()),),
    "row_mass": (tuple(CUDA_TYPES.values()),),
    "list_candidates": (tuple(CUDA_TYPES.values()),),
    "tile_slots": (),
    "select_slots": (),
    "split_halves": (),
    "add_nudge": (),
    "filter_rows": (),
    "rule_out": (),
}
"""The values that each kernel's template parameters can have."""

KERNELS_OF_A_SEARCH = tuple(
    expression(name, *values)
    for name, parameters in _PARAMETERS.items()
    for values in product(*parameters)
)
"""As C++ names them: ``score_rows<float, true>``."""
