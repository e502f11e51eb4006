"""What tests of several files need: a table of random rows, and which kernels were launched."""

import numpy as np

from beamsieve.index.build import make_table

B, M, V, ROWS = 2, 96, 300, 40


def make_case(layout, kind, seed=0):
    """A last table of random rows, and beams and logits for it; ``kind`` names the logits."""
    rng = np.random.default_rng(seed)
    valid = rng.random((ROWS, V)) < rng.random((ROWS, 1))
    valid[:, 0] |= ~valid.any(axis=1)
    row, token = np.nonzero(valid)
    starts = np.searchsorted(row, np.arange(ROWS + 1)).astype(np.int32)
    table = make_table(1, V, starts, token.astype(np.uint16), layout)
    rows = rng.integers(0, ROWS, (B, M))
    scores = np.sort(-4 * rng.random((B, M)).astype(np.float32), axis=1)[:, ::-1].copy()
    logits = rng.standard_normal((B, M, V)).astype(np.float32)
    if kind == "tied":
        logits = np.round(logits)
        scores[:] = -1
    if kind == "equal":
        logits[:] = 0
        rows[:] = int(np.diff(starts).argmax())
        scores[:] = -1
    return table, valid, rows, scores, logits


def launches_of(backend, monkeypatch):
    """A list that the names of all kernels launched from now on are added to."""
    launch = backend._device.launch
    names: list[str] = []

    def noted(name, *arguments, **options):
        names.append(name)
        launch(name, *arguments, **options)

    monkeypatch.setattr(backend._device, "launch", noted)
    return names
