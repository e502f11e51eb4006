"""CUDA C++ kernels, compiled at run time by NVRTC through CuPy: no torch needed."""

from beamsieve_backends.cupy_raw.backend import CupyBackend

__all__ = ["CupyBackend"]
