"""What training lowers: the cost of the codes that really came, and of what a teacher says."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation names it


def spelling_loss(
    logits: Sequence[Tensor],
    targets: Tensor,
    *,
    label_smoothing: float = 0.0,
    teacher: Sequence[Tensor] | None = None,
    teacher_share: float = 0.0,
) -> Tensor:
    """Mean over N targets of the cross-entropy of their codes, all levels together, in nats.

    With a teacher the wanted distribution of each code is (1 - α) · one-hot + α · teacher's
    ("Separating Thinking from Spelling …", knowledge distillation as label smoothing).

    Args:
        logits: per level [N, V_l].
        targets: int64 [N, L]; a level that a shorter semantic ID does not have, -1, costs nothing.
        label_smoothing: share of each one-hot spread over its whole codebook.
        teacher: per level [N, V_l]; the teacher's logits under the same gold prefixes.
        teacher_share: α.
    """
    total = logits[0].new_zeros((), dtype=torch.float32)
    if len({said.shape[-1] for said in logits}) == 1:
        # Codebooks of one size cost as much as one level of all their codes, in fewer kernels.
        wanted_codes: Sequence[Tensor] = [targets.T.flatten()]
        logits = [torch.cat([*logits])]
        teacher = None if teacher is None else [torch.cat([*teacher])]
    else:
        wanted_codes = targets.unbind(1)
    for level, (said, wanted) in enumerate(zip(logits, wanted_codes, strict=True)):
        own = F.cross_entropy(
            said.float(),
            wanted,
            ignore_index=-1,
            reduction="sum",
            label_smoothing=label_smoothing,
        )
        if teacher is None:
            total = total + own
            continue
        likely = torch.softmax(teacher[level].float(), -1)
        taught = F.cross_entropy(said.float(), likely, reduction="none")
        taught = torch.where(wanted >= 0, taught, 0.0).sum()
        total = total + (1 - teacher_share) * own + teacher_share * taught
    return total / max(1, len(targets))
