"""Searches by the Triton backend and by the specification, side by side."""

import numpy as np
import torch

import beamsieve_spec as spec
from beamsieve.catalog import Catalog
from beamsieve.engine import Engine
from beamsieve.index import Index
from beamsieve.interface import Normalize, StepInputs
from beamsieve_backends.triton_slots import TritonBackend

TOLERANCE = 1e-5


class Walk:
    """A small random catalog, decoded by the Triton backend and by the specification at once."""

    def __init__(self, seed, vocabulary, length, items, *, ragged=False, layout=None,
                 normalize: Normalize = "catalog"):  # fmt: skip
        self.draw = np.random.default_rng(seed)
        self.vocabulary = vocabulary
        self.normalize: Normalize = normalize
        sids = {tuple(map(int, row)) for row in self.draw.integers(0, vocabulary, (items, length))}
        if ragged:
            cut = {sid[: self.draw.integers(1, length)] for sid in sids if sid[-1] % 4 == 0}
            sids = {sid for sid in sids if not any(sid[:n] in cut for n in range(1, length))}
            cut = {sid for sid in cut if not any(sid[:n] in cut for n in range(1, len(sid)))}
            sids |= cut
        padded = np.full((len(sids), length), -1)
        for row, sid in zip(padded, sorted(sids), strict=True):
            row[: len(sid)] = sid
        catalog = Catalog.from_arrays(padded, codebooks=[vocabulary] * length)
        self.trie = spec.Trie(sorted(sids), codebooks=[vocabulary] * length)
        self.engine = Engine(Index.build(catalog, layout=layout), TritonBackend(), normalize)

    def begin(self, batch):
        self.expected = spec.begin(self.trie, batch=batch)
        self.beams = self.engine.begin(batch)

    def step(self, width, *, hidden=None, head=None, logits=None, bonus=None, nudge=None,
             projection=None):  # fmt: skip
        """One step on both sides, compared."""
        if logits is None:
            assert hidden is not None
            assert head is not None
            exact = hidden.double() @ head.double().T
        else:
            exact = logits
        self.expected = spec.step(
            self.trie, self.expected, width, np.asarray(exact, np.float64), self.normalize,
            bonus, nudge,
        )  # fmt: skip
        given = {"hidden": hidden, "head": head, "logits": logits, "bonus": bonus, "nudge": nudge}
        backend = self.engine._backend
        if projection is None:
            self.beams = self.engine.step(self.beams, width, **given)
        else:
            inputs = StepInputs(width, hidden=hidden, head=head, projection=projection)
            self.beams = backend.step(self.beams, inputs, self.normalize)
        self.compare()

    def compare(self):
        """Counts, places and rows agree; where two differ, their scores are all but equal."""
        found, expected = self.beams, self.expected
        assert found.count.tolist() == expected.count.tolist()
        scores = found.scores.numpy().astype(np.float64)
        real = np.isfinite(expected.scores)
        assert (np.isfinite(scores) == real).all()
        allowed = TOLERANCE * expected.step * np.maximum(1, np.abs(expected.scores[real]))
        assert (np.abs(scores[real] - expected.scores[real]) <= allowed).all()
        keys = found.keys.numpy()[real].astype(np.float64)
        assert np.allclose(keys, expected.keys[real], rtol=0, atol=1e-3)
        same = np.ones(real.shape, bool)
        for name in ("tokens", "rows", "parents", "finished"):
            equal = getattr(found, name).numpy() == getattr(expected, name)
            same &= equal.reshape(*real.shape, -1).all(-1)
        if not same.all():  # neighbours in the order may have changed places
            gap = np.full(real.shape, np.inf)
            gap[:, 1:] = np.abs(np.diff(expected.keys, axis=1))
            near = (gap < 1e-5) | (np.roll(gap, -1, 1) < 1e-5)
            assert (near | same)[:, :-1].all()
            # From here on both sides would go different ways.
            raise PartedError

    def normal(self, width, dtype=torch.float32):
        """Random hidden states for the current beams, and a head."""
        batch, places = self.beams.rows.shape
        hidden = torch.from_numpy(self.draw.standard_normal((batch, places, 24)))
        head = torch.from_numpy(self.draw.standard_normal((self.vocabulary, 24)) / 5)
        return {"hidden": hidden.to(dtype), "head": head.to(dtype)}


class PartedError(Exception):
    """A tie within rounding was broken differently; the walk cannot go on together."""


WAYS = {
    "as it is": {},
    "dense": {"layout": "dense"},
    "sparse": {"layout": "sparse"},
    "whole codebook": {"normalize": "all"},
    "eligible": {"normalize": "eligible", "layout": "sparse"},
    "several lengths": {"ragged": True},
    "several lengths, dense": {"ragged": True, "layout": "dense"},
}


def follow(walk, widths, batch=2, **how):
    walk.begin(batch)
    for done, width in enumerate(widths):
        try:
            walk.step(width, **walk.normal(width), **how)
        except PartedError:
            assert done > 0, "the first step has no near ties here"
            return
