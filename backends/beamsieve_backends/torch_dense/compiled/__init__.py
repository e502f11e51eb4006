"""The step in loops that Numba compiles, on the CPU: an optional extra, ``beamsieve[compiled]``.

Read in this order: ``step`` (what is handed over), ``logits`` (candidates, products, sums),
``choice`` (the best of them), ``vectors`` (dot products in registers), ``threads`` and
``toolchain``. Nothing but ``toolchain`` may be imported where Numba is missing.
"""
