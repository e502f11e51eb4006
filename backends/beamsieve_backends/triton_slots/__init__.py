"""Filter, projection and selection as fused Triton kernels on padded candidate slots.

A full projection writes no logits: each tile of a beam's codebook leaves its largest candidates and
its share of the log-softmax (``project``), a threshold among them names the few groups that can
hold one of the best (``choose``), those are scored again (``revisit``), and ranked (``rank``). A
selective projection scores each beam's valid tokens in slots of their own (``slots``) and ranks
them. ``step`` plans the launches from shapes alone.
"""

from beamsieve_backends.triton_slots.backend import TritonBackend

__all__ = ["TritonBackend"]
