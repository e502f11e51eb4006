"""How good a tokenizer's semantic IDs are, before anything is trained on them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from beamsieve.tokenizer.quantise import Tokens


def report_of(tokens: Tokens) -> dict[str, Any]:
    """Plain values.

    - ``items``, ``paths`` (rows), ``semantic_ids`` (distinct ones) and ``collisions`` (rows that
      shared one before a collision level);
    - per level, ``codes_used`` of ``codebooks``, and the ``entropy_bits`` of their use, at most
      log2 of the codebook;
    - per clustered level, ``reconstruction_error``: the mean squared distance left over, as a
      share of the vectors' variance.
    """
    entropies, used = [], []
    for level in range(tokens.sids.shape[1]):
        counts = np.bincount(tokens.sids[:, level])
        shares = counts[counts > 0] / len(tokens.sids)
        used.append(len(shares))
        entropies.append(float(-(shares * np.log2(shares)).sum()) or 0.0)
    return {
        "items": len(np.unique(tokens.items)),
        "paths": len(tokens.items),
        "semantic_ids": len(np.unique(tokens.sids, axis=0)),
        "collisions": tokens.collisions,
        "codebooks": list(tokens.codebooks),
        "codes_used": used,
        "entropy_bits": entropies,
        "most_entropy_bits": [math.log2(size) for size in tokens.codebooks],
        "reconstruction_error": list(tokens.errors),
    }
