"""Numbers for a backend: rounded to a dtype, and put where the backend computes.

A model hands over its arrays on the backend's device, through DLPack or the array interface. On
"cpu" that is NumPy itself, and torch for bfloat16, which NumPy has not. On any other device it is
torch where torch is installed, else CuPy.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray


class CannotMakeError(RuntimeError):
    """No installed array library can make such an array here; the message says which would."""


def round_to(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """``values`` rounded to ``dtype``, as float32 numbers, which hold each of them exactly (as
    float64 ones where that is the dtype)."""
    if dtype == "float64":
        return np.asarray(values, np.float64)
    numbers = np.asarray(values, np.float32)
    if dtype == "float32":
        return numbers
    if dtype == "float16":
        with np.errstate(over="ignore"):  # 70 000 becomes +inf in float16, as it would in a model
            return numbers.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        return _round_to_bfloat16(numbers)
    raise ValueError(f"the suite makes arrays of float16 to float64 and bfloat16, not {dtype}")


def _round_to_bfloat16(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """The upper half of each float32, rounded to nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    with np.errstate(over="ignore"):
        rounded = (bits + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(numbers), numbers, rounded.view(np.float32)).reshape(numbers.shape)


def put(values: NDArray[Any], dtype: str, device: str) -> Any:
    """``values`` as an array of ``dtype`` on ``device``.

    Args:
        values: numbers that ``dtype`` holds exactly (see :func:`round_to`). On "cpu" their strides
            are kept, and no copy is made of an array that has the dtype already.
        dtype: "float32", "bfloat16", "float16" or "float64".
        device: "cpu", "cuda:0", …

    Raises:
        CannotMakeError: neither torch nor CuPy is there to make it.
    """
    if device == "cpu" and dtype != "bfloat16":
        return np.asarray(values, dtype)
    if importlib.util.find_spec("torch") is not None:
        torch = importlib.import_module("torch")
        wide = np.float64 if dtype == "float64" else np.float32
        numbers = np.array(values, wide)  # a copy: torch warns of read-only memory
        return torch.from_numpy(numbers).to(device=device, dtype=getattr(torch, dtype))
    if device.startswith("cuda") and importlib.util.find_spec("cupy") is not None:
        if dtype == "bfloat16":
            raise CannotMakeError("bfloat16 arrays on a GPU are made by torch: pip install torch")
        cupy = importlib.import_module("cupy")
        number = int(device.partition(":")[2] or 0)
        with cupy.cuda.Device(number):
            return cupy.asarray(np.asarray(values, dtype))
    raise CannotMakeError(f"{dtype} arrays on {device} are made by torch: pip install torch")
