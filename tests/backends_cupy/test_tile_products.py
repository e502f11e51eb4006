"""Steps that keep no logits, against float64 arithmetic and against the launches that keep them."""

import numpy as np
import pytest
from full_steps import all_keys_equal, check, make_case, not_finite, numbers_of_any_size
from host_cases import launches_of

from beamsieve_backends.cupy_raw import steps, tile_products
from beamsieve_backends.cupy_raw.warp_groups import INSTANCES


@pytest.fixture(autouse=True)
def always(backend, monkeypatch):
    """Every step that these launches take goes by them, and the names of all launches are kept."""
    monkeypatch.setattr(steps, "FEW_CANDIDATES", 0)
    monkeypatch.setattr(backend._device, "tile_products", "always")


@pytest.fixture
def names(backend, monkeypatch):
    return launches_of(backend, monkeypatch)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("vocabulary", [300, 1500])
def test_every_dtype(backend, names, dtype, vocabulary):
    check(backend, make_case(vocabulary, 70, 40), 60, dtype)
    assert [name for name in names if name != "split_halves"] == [
        "multiply_tiles",
        "key_tiles",
        "reopen_tiles",
    ]


@pytest.mark.parametrize(
    ("dtype", "most_pairs", "instance", "split"),
    [
        ("float32", 4, ("float", "true", "true"), ["split_halves"]),
        ("float32", 2, ("float", "true", "false"), ["split_halves"]),
        ("float16", 4, ("float16", "true", "false"), []),
    ],
)
def test_states_are_split_where_it_pays(
    backend, names, monkeypatch, dtype, most_pairs, instance, split
):
    monkeypatch.setattr(tile_products, "MOST_PAIRS", most_pairs)
    taken = []
    multiply = backend._device.multiply_tiles

    def noted(values, factors, form, grid, shared, *parameters):
        taken.append((parameters, factors[0][1]))
        multiply(values, factors, form, grid, shared, *parameters)

    monkeypatch.setattr(backend._device, "multiply_tiles", noted)
    check(backend, make_case(300, 70, 40), 60, dtype)
    # Where the kernel splits states itself, their map is the head's, which nothing reads.
    rows = 300 if instance[2] == "true" else 70
    assert taken == [(instance, rows)]
    assert instance in INSTANCES
    assert [name for name in names if name == "split_halves"] == split


def test_every_token_in_the_denominator(backend):
    check(backend, make_case(1500, 40, 16), 50, "float16", normalize="all")


@pytest.mark.parametrize("width", [60, 4])
def test_numbers_of_any_size(backend, width):
    check(backend, numbers_of_any_size(300), width)


@pytest.mark.parametrize("normalize", ["catalog", "all"])
def test_logits_that_are_not_finite_die_alone(backend, normalize):
    check(backend, not_finite(300), 50, normalize=normalize)


def test_more_equal_keys_than_fit_are_taken_in_order(backend):
    case, wanted = all_keys_equal()
    after = check(backend, case, 300)
    found = list(zip(after.tokens[0, :, 0].tolist(), after.parents[0].tolist(), strict=True))
    assert found == wanted[:300]


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
