"""The structures that kernels take, mirrored: one NumPy dtype per structure of ``kernels/``.

Every kernel takes exactly one structure by value. ``align=True`` lays its fields out as C does, and
pointers travel as 64-bit integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_POINTER, _LONG, _INT = np.uint64, np.int64, np.int32


def _named(*parts: tuple[Any, str]) -> list[tuple[str, Any]]:
    return [(name, kind) for kind, names in parts for name in names.split()]


def _structure(*parts: tuple[Any, str]) -> np.dtype[Any]:
    return np.dtype(_named(*parts), align=True)


STARTS = _structure((_POINTER, "plain bits samples exceptions"), (_INT, "bytes block_bits gap"))

TABLE = np.dtype(
    [
        ("starts", STARTS),
        *((name, _POINTER) for name in ("tokens", "bitmap", "ranks")),
        *((name, _INT) for name in ("token_bits", "rank_bytes", "words", "groups")),
    ],
    align=True,
)

STEP = np.dtype(
    [
        ("table", TABLE),
        ("next", STARTS),
        *_named(
            (_POINTER, "child_leaf in_tokens in_scores in_rows in_finished in_count"),
            (_POINTER, "hidden head bias logits left_units right_units bonus nudge mass eligible"),
            (_POINTER, "out_tokens out_scores out_keys out_rows out_parents out_finished"),
            (_POINTER, "out_count scratch groups lists masses seen meetings"),
            (_LONG, "scratch_stride"),
            (_INT, "beams width decoded vocabulary hidden_size next_ends leaf_bytes bias_type"),
            (_INT, "normalize capacity eligible_words last_level aligned vectors"),
            (_INT, "list_capacity tile tiles parts slots group warps_per_beam single staged"),
            (_INT, "requests request_parts"),
        ),
    ],
    align=True,
)

SLOTS_OUT = np.dtype(
    [
        ("step", STEP),
        *((name, _POINTER) for name in ("tokens", "scores", "rows")),
        ("slots", _LONG),
    ],
    align=True,
)

SLOTS_IN = np.dtype(
    [
        ("step", STEP),
        *(
            (name, _POINTER)
            for name in ("tokens", "scores", "rows", "keys", "top_values", "top_places")
        ),
        ("slots", _LONG),
        ("total", _LONG),
    ],
    align=True,
)

SIXTEENS = np.dtype(
    [("step", STEP), *_named((_POINTER, "bests sums"), (_INT, "pairs segments"))], align=True
)

PRODUCT = np.dtype(
    [
        *((name, _POINTER, 16) for name in ("left", "right")),
        ("sixteens", SIXTEENS),
        *_named((_LONG, "rows"), (_INT, "stages")),
        ("behind", np.uint8, -(SIXTEENS.itemsize + 16) % 64),
    ],
    align=True,
)
"""As long as a structure whose address is a multiple of 64, as tensor maps want it."""

HALVES = np.dtype(
    [
        *((name, _POINTER, 2) for name in ("in", "out", "units")),
        ("rows", _LONG, 2),
        ("size", _INT),
    ],
    align=True,
)

NUDGE = np.dtype(
    [
        *((name, _POINTER) for name in ("tokens", "scores", "nudge", "keys")),
        *((name, _LONG) for name in ("total", "slots", "vocabulary")),
    ],
    align=True,
)

BLOOM = _structure((_POINTER, "ruled_out count"), (_INT, "words offset groups"))

FILTER = np.dtype(
    [
        ("step", STEP),
        ("bloom", BLOOM, 8),
        *(
            (name, _POINTER)
            for name in (
                *("part_starts", "rows", "index", "asked", "leaf_mode", "set_starts"),
                *("leaves", "leaf_starts", "leaf_ends", "out"),
            )
        ),
        *(
            (name, _INT)
            for name in (
                *("out_words", "bit_words", "row_words", "index_bytes", "part_bytes"),
                *("leaf_bytes", "blooms", "staged", "whole_rows"),
            )
        ),
    ],
    align=True,
)

SIGNATURES = _structure(
    (_POINTER, "signatures count ruled_out"), (_LONG, "total"), (_INT, "places words groups")
)

STRUCTURES = {
    "score_rows": STEP,
    "multiply_row": STEP,
    "choose_row": STEP,
    "whole_row": STEP,
    "fused_rows": STEP,
    "score_tiles": STEP,
    "open_tiles": STEP,
    "pool_tiles": STEP,
    "rank_tiles": STEP,
    "multiply_tiles": PRODUCT,
    "key_tiles": SIXTEENS,
    "reopen_tiles": SIXTEENS,
    "split_halves": HALVES,
    "row_mass": STEP,
    "list_candidates": SLOTS_OUT,
    "tile_slots": SLOTS_IN,
    "select_slots": SLOTS_IN,
    "add_nudge": NUDGE,
    "filter_rows": FILTER,
    "rule_out": SIGNATURES,
}
"""The structure that each kernel takes."""

NORMALIZERS = {"all": 0, "catalog": 1, "eligible": 2}
NUMBER_TYPES = {"float32": 0, "bfloat16": 1, "float16": 2}
CUDA_TYPES = {"float32": "float", "bfloat16": "bfloat16", "float16": "float16"}
"""What a kernel's template calls the dtypes."""


def structure(kind: np.dtype[Any], **fields: Any) -> Any:
    """One structure, all zero but the fields given."""
    values = np.zeros((), kind)
    for name, value in fields.items():
        values[name] = value
    return values
