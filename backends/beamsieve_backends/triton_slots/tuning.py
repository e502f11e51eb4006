"""Block shapes and limits: what is fast on a large GPU. Nothing but speed, and the order of some
sums, depends on them."""

from __future__ import annotations

from typing import Any

from beamsieve_backends.triton_slots.launch import INTERPRETED

FURTHER = 16
"""The slots of a unit of what a row has beyond its first unit."""
WIDE_ROW = 32 * FURTHER
"""Where a row has so many tokens, requests that meet it decide how long finishing takes: so many
warps as there are for units, and each program on a processor of its own. Scoring takes a unit of
such a row for more requests at once, as its head rows are most of what it reads."""
PLAIN_ROWS = 1 << 16
"""A table that has such a row, and no more rows than this, keeps every start on the device: the row
makes exceptions of its neighbours' starts, which take three waits in place of one."""
GROUP = 8
LIMIT = 4
"""Groups that the choice may leave, as a multiple of the width. Searches leave twice of it, and now
and then three times (``beamsieve_bench.groups_left``); of what is more, one program finds the best,
which takes as long as the rest of the step."""
LISTING = 2048
"""Groups that a program looks at at once when it lists them."""
HELD = 8192
"""The most numbers that one program holds beside others in registers."""
KEYS_HELD = 16384
"""The most keys that it holds alone."""
PROCESSORS = 2 if INTERPRETED else 132
"""How many programs are enough to fill a large GPU; only speed depends on it."""
TOGETHER = 2
"""How many products share a processor, so that one multiplies while the other looks at its tile."""


TUNING: dict[str, dict[str, Any]] = {
    "slots": {
        "programs": 16,
        "together": 8,
        "BLOCK_K": 256,
        "PART": 64,
        "registers": 128,
    },
    "slots_of_wide_rows": {"programs": 8, "together": 16, "registers": 128},
    "statistics_16": {"BLOCK_M": 16, "BLOCK_K": 64, "warps": 4, "stages": 3},
    "statistics_64": {"BLOCK_M": 64, "BLOCK_K": 64, "warps": 4, "stages": 3},
    "statistics_128": {"BLOCK_M": 128, "BLOCK_K": 64, "warps": 8, "stages": 3, "registers": 128},
    "split": {"BLOCK_K": 32},
    "groups_few": {"GROUPS": 2, "BLOCK_K": 64, "warps": 4},
    "groups_many": {"GROUPS": 8, "BLOCK_K": 32, "warps": 4, "registers": 96},
    "rank": {"few": 8, "OWN": 32, "OTHERS": 64, "warps": 4},
    "tile": {
        "one": {"narrow": 64, "wide": 64},
        "few": {"narrow": 64, "wide": 128},
        "many": {"small": 64, "narrow": 128, "wide": 128},
    },
    "finish": {"direct": True, "ranked": 4096, "warps": 8, "held_by_warp": 512, "interval": 128},
    "rows": {"shared": 1, "units": 4},
    "one_row": {
        "warps": {64: 1, 512: 4, 2048: 4, 8192: 8},
        "pairs": 1 << 23,
        "few": 2048,
        "own_of_few": 8,
        "own": 32,
        "ranked": 2048,
        "together": 8,
    },
    # WORD_BLOCK: a multiple of the 8 words that have one rank. ENTRIES, and UNITS times 16: no
    # fewer than there are threads, as a number that lies in several of them is summed twice.
    "permitted": {
        "few": {"WORD_BLOCK": 8, "ENTRIES": 256, "warps": 4},
        "many": {"WORD_BLOCK": 64, "ENTRIES": 256, "warps": 2},
    },
    "permitted_units": {"UNITS": 32, "warps": 4},
    "survivors": {
        "chunks": (512, 2048, 4096),
        "warps": 8,
        "warps_by_units": 16,
        "registers": 128,
    },
}
"""Block shapes that were fast on an H200. Those that decide the order of a sum follow from a
request's own shape (few or many beams), never from the batch, so that no result does either; of
``statistics`` all give the same bits."""


def coarse(n: int, least: int = 1) -> int:
    """The smallest power of eight from ``n`` on: few sizes of blocks occur, so few kernels are
    compiled, where speed does not depend on it."""
    size = least
    while size < n:
        size *= 8
    return size


def columns_of(vocabulary: int) -> int:
    """The columns of a block that holds whole codebooks; of four sizes, for the same reason."""
    return next((n for n in (64, 512, 2048) if vocabulary <= n), max(8192, vocabulary))


def beams_up(beams: int) -> int:
    """A block that holds so many beams; of three sizes, for the same reason."""
    return 128 if beams <= 128 else 512 if beams <= 512 else 4096


def warps_for(elements: int) -> int:
    """Warps of a program that holds so many elements."""
    return min(32, max(4, elements // 512))
