"""Arrays of other libraries as CuPy's, without a copy."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import cupy
import numpy as np

from beamsieve.errors import InputError

_CUDA = (2, 13)  # DLPack's numbers: CUDA memory, plain or managed


def accepted(value: Any, what: str, number: int) -> Any:
    """``value`` as an array on the device ``cuda:number``.

    Raises:
        InputError: it is on another device, or no array.
    """
    if isinstance(value, cupy.ndarray):
        array = value
    elif type(value).__module__.partition(".")[0] == "torch":
        array = _from_torch(value, what, number)
    elif hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        kind, _ = value.__dlpack_device__()
        if int(kind) not in _CUDA:
            raise _elsewhere(what, "not on a CUDA device", number)
        array = cupy.from_dlpack(value)
    elif hasattr(value, "__cuda_array_interface__"):
        array = cupy.asarray(value)
    else:
        raise _elsewhere(what, f"a {type(value).__name__} on the host", number)
    if array.device.id != number:
        raise _elsewhere(what, f"on cuda:{array.device.id}", number)
    return array


def _from_torch(tensor: Any, what: str, number: int) -> Any:
    if not tensor.is_cuda:
        raise _elsewhere(what, f"on {tensor.device}", number)
    torch = sys.modules["torch"]
    tensor = tensor.detach().resolve_neg()
    if tensor.dtype != torch.bfloat16:
        return cupy.from_dlpack(tensor)
    try:
        bfloat16 = importlib.import_module("ml_dtypes").bfloat16
    except ImportError:
        raise InputError(
            f"{what} is bfloat16, which CuPy knows through ml_dtypes: pip install ml_dtypes."
        ) from None
    return cupy.from_dlpack(tensor.view(torch.int16)).view(bfloat16)


def _elsewhere(what: str, where: str, number: int) -> InputError:
    return InputError(
        f"{what} is {where}; this backend computes on cuda:{number}: move it there first."
    )
