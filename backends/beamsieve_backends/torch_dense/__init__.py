"""The step in ordinary PyTorch operations, for CPU and CUDA alike.

Read in this order: ``tables`` (the index on the device) with ``row_starts`` and ``entry_tokens``
(its compressed parts), ``tiles`` (the candidates of a step), ``products`` and ``gemm`` (their
logits), ``sums``, ``statistics`` and ``scores`` (what their scores are), ``selection`` (the best of
them), and ``backend``, which puts these together, with ``outside`` (what it is given). ``compiled``
is a step by itself, in loops that Numba compiles.
"""

from beamsieve_backends.torch_dense.backend import TorchBackend

__all__ = ["TorchBackend"]
