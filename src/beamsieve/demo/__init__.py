"""``beamsieve demo``: a made-up world, from item vectors to recommendations."""

from __future__ import annotations

from typing import Any


def run_demo(
    *, json: bool = False, seed: int = 0, quick: bool = False, backend: str = "torch:cpu"
) -> dict[str, Any]:
    """Make a world, train, decode held-out users and report.

    Args:
        json: nothing is drawn but progress bars; the caller prints the result.
        seed: of the world and of the training.
        quick: a small world, for tests: seconds in place of a minute.
        backend: config string of the engine.

    Returns:
        Plain values with the keys ``legal_share``, ``overlap``, ``recall_at_10``,
        ``ms_per_request``, ``index_bytes`` and others.
    """
    raise NotImplementedError
