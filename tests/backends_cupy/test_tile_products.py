"""Steps that keep no logits, against float64 arithmetic and against the launches that keep them."""

import numpy as np
import pytest
from test_full_projection import check, make_case

from beamsieve_backends.cupy_raw import steps, tile_products


@pytest.fixture(autouse=True)
def always(backend, monkeypatch):
    """Every step that these launches take goes by them, and the names of all launches are kept."""
    monkeypatch.setattr(steps, "FEW_CANDIDATES", 0)
    monkeypatch.setattr(backend._device, "tile_products", "always")


@pytest.fixture
def names(backend, monkeypatch):
    launch, found = backend._device.launch, []

    def noted(name, *arguments, **options):
        found.append(name)
        launch(name, *arguments, **options)

    monkeypatch.setattr(backend._device, "launch", noted)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("vocabulary", [300, 1500])
def test_every_dtype(backend, names, dtype, vocabulary):
    check(backend, make_case(vocabulary, 70, 40), 60, dtype)
    assert [name for name in names if name != "split_halves"] == [
        "multiply_tiles",
        "key_tiles",
        "reopen_tiles",
    ]


def test_every_token_in_the_denominator(backend):
    check(backend, make_case(1500, 40, 16), 50, "float16", normalize="all")


@pytest.mark.parametrize("width", [60, 4])
def test_numbers_of_any_size(backend, width):
    table, valid, beams, hidden, head = make_case(300, 40, 16)
    hidden[0, ::3] *= np.float32(2.0**100)
    hidden[0, 1::3] *= np.float32(2.0**-100)
    head[::2] *= np.float32(2.0**-100)
    head[1::2] *= np.float32(2.0**-120)
    check(backend, (table, valid, beams, hidden, head), width)


@pytest.mark.parametrize("normalize", ["catalog", "all"])
def test_logits_that_are_not_finite_die_alone(backend, normalize):
    table, valid, beams, hidden, head = make_case(300, 40, 16)
    head[5, 3] = np.nan
    head[70, 0] = np.inf
    check(backend, (table, valid, beams, hidden, head), 50, normalize=normalize)


def test_more_equal_keys_than_fit_are_taken_in_order(backend):
    table, valid, beams, hidden, head = make_case(300, 70, 16)
    hidden[:] = 0
    beams.scores[:] = -1
    beams.rows[:] = int(valid.sum(axis=1).argmax())
    after = check(backend, (table, valid, beams, hidden, head), 300)
    chosen = np.flatnonzero(valid[beams.rows[0, 0]])
    wanted = [(-1, 1)] + [(v, m) for m in (0, *range(2, 70)) for v in chosen.tolist()]
    found = list(zip(after.tokens[0, :, 0].tolist(), after.parents[0].tolist(), strict=True))
    assert found == sorted(wanted[:300], key=wanted.index)


def test_splits_and_blocks_change_no_bit(backend, monkeypatch):
    case = make_case(2300, 70, 24)
    found = []
    for processors in (1, 40):
        monkeypatch.setattr(backend._device, "multiprocessors", processors)
        after = check(backend, case, 60, "float16")
        found.append((after.keys.tobytes(), after.tokens.tobytes(), after.parents.tobytes()))
    assert found[0] == found[1]


def test_steps_that_they_do_not_take_go_the_other_way(backend, names):
    bias = np.zeros(300, np.float32)
    check(backend, make_case(300, 70, 40), 60, bias=bias)
    check(backend, make_case(300, 70, tile_products.MOST_DEPTH + 8), 60)
    check(backend, make_case(300, 70, 12), 60, "float16")
    assert "multiply_tiles" not in names
