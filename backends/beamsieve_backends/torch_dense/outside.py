"""What comes from outside: devices and tile sizes from a config string, and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.utils.dlpack
from torch import Tensor

from beamsieve.errors import BackendError, InputError
from beamsieve_backends.torch_dense.tables import LARGEST_TILE


def imported(value: Any, what: str) -> Tensor:
    """NumPy arrays, and anything with DLPack, as a tensor; without a copy where they allow it."""
    try:
        if hasattr(value, "__array_interface__"):
            value = np.asarray(value)
            if not value.flags.writeable or any(stride < 0 for stride in value.strides):
                value = value.copy()
            return torch.from_numpy(value)
        if hasattr(value, "__dlpack__"):
            return torch.utils.dlpack.from_dlpack(value)
        if hasattr(value, "__cuda_array_interface__"):
            return torch.as_tensor(value)
    except (AssertionError, BufferError, RuntimeError, TypeError, ValueError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"{what} cannot be read as a tensor: {why}.") from error
    raise InputError(
        f"{what} is a {type(value).__name__}; give a tensor or array (anything with DLPack or the "
        f"array interface)."
    )


def opened_device(wanted: str | None) -> torch.device:
    """The device that a config string names; CUDA where there is any when it names none."""
    if wanted is None:
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise BackendError(
            f"{wanted!r} is no device that PyTorch knows; give cpu or cuda."
        ) from None
    if device.type == "cpu":
        if device.index:
            raise BackendError(f"There is no device {wanted!r}: PyTorch has one cpu; give cpu.")
        return torch.device("cpu")
    if device.type != "cuda":
        raise BackendError(f"The backend 'torch' runs on cpu and cuda, not on {wanted!r}.")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = torch.cuda.current_device() if found and device.index is None else device.index or 0
    if number >= found:
        raise BackendError(
            f"There is no device {wanted!r}: this PyTorch ({torch.__version__}) sees "
            f"{found} CUDA devices; install a CUDA build of torch, or use torch:cpu."
        )
    return torch.device("cuda", number)


def tile_slots(text: str | None) -> int | None:
    """The option ``tile``."""
    if text is None:
        return None
    sizes = [1 << power for power in range(LARGEST_TILE.bit_length())]
    if not text.isdigit() or int(text) not in sizes:
        raise BackendError(f"The option tile is {text!r}; it must be a power of two up to 64.")
    return int(text)
