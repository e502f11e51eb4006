"""Heads that are prepared: whose they are, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import beamsieve as bs
from beamsieve_backends.torch_dense import TorchBackend


def hidden():
    return np.zeros((2, 1, 6), np.float32)


def test_a_prepared_head_serves_its_own_engine_alone(engine):
    head = engine.prepare_head(np.eye(3, 6, dtype=np.float32))
    beams = engine.step(engine.begin(2), 2, hidden=hidden(), head=head)
    assert beams.count.tolist() == [2, 2]
    other = bs.Engine(engine.index, backend=TorchBackend("cpu"))
    with pytest.raises(bs.InputError, match="prepared by another engine"):
        other.step(other.begin(2), 2, hidden=hidden(), head=head)
    with pytest.raises(bs.InputError, match="prepared by another engine"):
        other.warm_up(2, [2] * engine.index.length, head)


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (np.zeros((3, 6, 1), np.float32), r"head has the shape \(3, 6, 1\); it must be \(V, d\)"),
        (np.zeros((0, 6), np.float32), "head has the shape"),
        (np.zeros((3, 6), np.int32), "head is int32"),
        ("head", "head"),
        (None, "head"),
    ],
)
def test_what_is_no_head_is_not_prepared(engine, head, says):
    with pytest.raises(bs.InputError, match=says):
        engine.prepare_head(head)


def test_a_head_is_prepared_once(engine):
    head = engine.prepare_head(np.zeros((3, 6), np.float32))
    with pytest.raises(bs.InputError, match="prepared already"):
        engine.prepare_head(head)


@pytest.mark.parametrize(
    ("shape", "says"),
    [((4, 6), "level 1 has a codebook of 3 tokens"), ((3, 5), r"it must be \(3, 6\)")],
)
def test_a_prepared_head_fits_the_level_or_is_refused(engine, shape, says):
    head = engine.prepare_head(np.zeros(shape, np.float32))
    with pytest.raises(bs.InputError, match=says):
        engine.step(engine.begin(2), 2, hidden=hidden(), head=head)


def test_the_parts_of_a_prepared_head_are_not_replaced(engine):
    head = engine.prepare_head(np.zeros((3, 6), np.float32))
    other = np.ones((3, 6), np.float32)
    for wrong in (
        replace(head, head=engine.prepare_head(other).head),
        replace(head, made="parts"),
        bs.PreparedHead(other, head.backend),
    ):
        with pytest.raises(bs.InputError, match="parts of this prepared head were replaced"):
            engine.step(engine.begin(2), 2, hidden=hidden(), head=wrong)


def test_no_room_for_a_prepared_head_is_one_sentence(engine, monkeypatch):
    def no_room(self, head):
        raise MemoryError

    monkeypatch.setattr(TorchBackend, "prepare_head", no_room)
    with pytest.raises(bs.BackendError, match="does not fit into the memory of cpu"):
        engine.prepare_head(np.zeros((3, 6), np.float32))
