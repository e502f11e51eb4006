"""The sums of the largest numbers, which bound what the widest rows of a table can take."""

import numpy as np
import pytest

from beamsieve_backends.largest import sums_of_largest


@pytest.mark.parametrize("count", [0, 1, 59, 60, 61, 600_000])
@pytest.mark.parametrize("most", [1, 3, 300_000])
@pytest.mark.parametrize(("least", "dtype"), [(0, np.int64), (1, np.int32), (2, np.uint16)])
def test_they_are_those_of_the_sorted_numbers(count, most, least, dtype):
    numbers = np.random.default_rng(count + most).integers(0, most, count).astype(dtype)
    largest = np.maximum(np.sort(numbers.astype(np.int64))[::-1][:60], least)
    assert sums_of_largest(numbers, 60, least).tolist() == [0, *np.cumsum(largest).tolist()]
