"""What a captured search is made of, as far as it needs no GPU."""

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is installed on Linux only")

from beamsieve_backends.triton_slots.graph import StaticArrays, _NoWaits, copied

CPU = torch.device("cpu")


def test_static_arrays_are_filled_in_place():
    rows, flags = np.arange(6).reshape(3, 2), np.array([True, False, True])
    arrays: dict[str, Any] = {
        "rows": rows,
        "bits": np.array([1 << 63], np.uint64),
        "none": np.empty((3, 0), np.int32),
        "flags": flags,
    }
    held = StaticArrays(arrays, CPU)
    before = {name: view.data_ptr() for name, view in held.views.items()}
    assert held.views["rows"].tolist() == rows.tolist()
    assert held.views["bits"].tolist() == [-(1 << 63)]
    assert held.views["none"].shape == (3, 0)
    held.fill(arrays | {"rows": rows * 2, "flags": ~flags})
    assert held.views["rows"].tolist() == (rows * 2).tolist()
    assert held.views["flags"].tolist() == [False, True, False]
    assert {name: view.data_ptr() for name, view in held.views.items()} == before


def test_copies_share_memory_where_the_originals_do():
    buffer = torch.arange(64, dtype=torch.uint8)
    first, second = buffer[:16].view(torch.int64), buffer[16:32].view(torch.int32).view(2, 2)
    alone = torch.ones(3)
    copies = copied([first, second, alone, first])
    assert copies[0] is copies[3]
    for copy, original in zip(copies, (first, second, alone), strict=False):
        assert copy.equal(original)
        assert copy.data_ptr() != original.data_ptr()
    assert copies[1].data_ptr() - copies[0].data_ptr() == 16
    buffer.zero_()
    assert copies[0].any()


def test_what_waits_for_no_device_is_let_through():
    with _NoWaits():
        x = torch.arange(6.0)
        assert float(x[x > 2].sum()) == 12.0
        assert x.to(torch.int64).tolist() == list(range(6))
