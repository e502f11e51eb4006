"""The full projection and its two passes over tiles, against float64 arithmetic in NumPy."""

import numpy as np
import pytest
from full_steps import all_keys_equal, check, make_case, not_finite, numbers_of_any_size

from beamsieve_backends.cupy_raw import projection, steps, tiles
from beamsieve_backends.cupy_raw.session import Workspace


@pytest.fixture(autouse=True)
def tiles_always(monkeypatch):
    """Even few candidates go through tiles."""
    monkeypatch.setattr(steps, "FEW_CANDIDATES", 0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("vocabulary", [300, 302, 1500])
def test_every_dtype(backend, dtype, vocabulary):
    check(backend, make_case(vocabulary, 70, 40), 60, dtype)


@pytest.mark.parametrize("normalize", ["catalog", "all"])
def test_a_bias_and_both_denominators(backend, normalize):
    bias = np.random.default_rng(1).standard_normal(130).astype(np.float32)
    check(backend, make_case(130, 40, 16), 50, normalize=normalize, bias=bias)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_warp_for_each_part_or_one_for_all_changes_no_bit(backend, monkeypatch, dtype):
    case = make_case(1500, 70, 24)
    found = []
    for processors in (1, 40):
        monkeypatch.setattr(backend._device, "multiprocessors", processors)
        after = check(backend, case, 60, dtype)
        found.append((after.keys.tobytes(), after.tokens.tobytes(), after.parents.tobytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize("size", [13, 260])  # no whole vectors; more of them than a lane each
def test_rows_of_any_length(backend, size):
    check(backend, make_case(130, 21, size), 40)


def test_a_tile_to_a_thread_or_several_changes_no_bit(backend, monkeypatch):
    case = make_case(1500, 70, 24)
    found = []
    for most in (tiles.TILES_TO_OPEN, 1 << 20):  # 1680 tiles: several blocks, and one
        monkeypatch.setattr(tiles, "TILES_TO_OPEN", most)
        after = check(backend, case, 60, "float16")
        found.append((after.keys.tobytes(), after.tokens.tobytes(), after.parents.tobytes()))
    assert found[0] == found[1]


def test_units_behind_the_last_token_are_written(backend):
    # Whole pairs of tiles are read, 384 units of 300.
    device = backend._device
    head = np.ones((300, 16), np.float32)
    alone = projection.FullProjection(device, Workspace(device), head[:2], head, 2, 300, None)
    for made in (projection.head_halves(device, head), alone.head_halves(16)):
        assert made is not None
        assert made.units.shape == (384,)
        assert (made.units[:300] > 0).all()
        assert (made.units[300:] == 0).all()


def test_numbers_of_any_size(backend):
    check(backend, numbers_of_any_size(130), 50)


def test_logits_that_are_not_finite_die_alone(backend):
    check(backend, not_finite(130), 50)


def test_more_equal_keys_than_fit_are_taken_in_order(backend):
    case, wanted = all_keys_equal()
    after = check(backend, case, 300)
    found = list(zip(after.tokens[0, :, 0].tolist(), after.parents[0].tolist(), strict=True))
    assert found == wanted[:300]
