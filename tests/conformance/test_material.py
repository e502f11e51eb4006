"""What the suite tries backends on: catalogs of every shape, and numbers of every dtype."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from beamsieve_conformance import (
    agreement,
    arrays,
    catalogs,
    compare,
    compile_check,
    failures,
    outcome,
    report,
)
from beamsieve_conformance.catalogs import CatalogShape


def children(sids: list[tuple[int, ...]], level: int) -> dict[tuple[int, ...], set[int]]:
    """The tokens that follow each prefix of ``level`` tokens."""
    found: dict[tuple[int, ...], set[int]] = {}
    for sid in sids:
        if len(sid) > level:
            found.setdefault(sid[:level], set()).add(sid[level])
    return found


def test_a_hub_is_far_wider_than_the_rest() -> None:
    sids = CatalogShape((50, 400, 5), 600, hub=1).sids()
    widths = sorted(len(tokens) for tokens in children(sids, 1).values())
    assert widths[-1] >= 300
    assert widths[-2] < 30


@pytest.mark.parametrize("chain", [1, 2, 3])
def test_a_chain_has_one_child_from_its_level_on(chain: int) -> None:
    sids = CatalogShape((9, 9, 9, 9), 200, chain=chain).sids()
    for level in range(chain, 4):
        assert all(len(tokens) == 1 for tokens in children(sids, level).values())


@pytest.mark.parametrize("end_token", [False, True])
def test_ragged_semantic_ids_end_early(end_token: bool) -> None:
    sids = CatalogShape((30, 30, 30), 500, ragged=True, end_token=end_token).sids()
    assert {len(sid) for sid in sids} == {1, 2, 3}
    prefixes = {sid[:length] for sid in sids for length in range(1, len(sid))}
    assert bool(prefixes & set(sids)) == end_token


def test_copies_collide_and_extremes_occur() -> None:
    sids = CatalogShape((7, 70_000), 40, copies=3).sids()
    assert len(sids) == 43
    assert len(set(sids)) == 40
    assert {(0, 0), (6, 69_999)} <= set(sids)


def test_the_same_shape_gives_the_same_catalog() -> None:
    shape = CatalogShape((8, 8, 8), 100, hub=1, ragged=True, copies=2, seed=5)
    assert shape.sids() == shape.sids()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_numbers_are_rounded_as_the_dtype_would(dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="its dtypes are what rounding is compared with")
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal(5000) * 10.0 ** rng.integers(-6, 6, 5000)
    numbers = np.append(numbers, [0.0, -0.0, 1e6, -1e6, np.inf, -np.inf, np.nan])
    rounded = arrays.round_to(numbers, dtype)
    wide = numbers if dtype == "float64" else numbers.astype(np.float32)
    expected = torch.from_numpy(wide).to(getattr(torch, dtype)).double().numpy()
    np.testing.assert_array_equal(rounded.astype(np.float64), expected)
    put = arrays.put(rounded, dtype, "cpu")
    assert str(put.dtype).rpartition(".")[2] == dtype


@pytest.mark.parametrize(
    "module", [agreement, catalogs, compare, compile_check, failures, outcome, report]
)
def test_examples_in_docstrings_hold(module: object) -> None:
    ended = doctest.testmod(module)  # type: ignore[arg-type]
    assert ended.attempted > 0
    assert ended.failed == 0
