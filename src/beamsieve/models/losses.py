"""What training lowers: the cost of the codes that really came, and of what a teacher says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation names it

if TYPE_CHECKING:
    from beamsieve.models.batches import Batch
    from beamsieve.models.settings import TrainingSettings
    from beamsieve.models.validity import ValidTokens


def training_loss(
    logits: Sequence[Tensor],
    batch: Batch,
    settings: TrainingSettings,
    *,
    teacher: Sequence[Tensor] | None = None,
    valid: ValidTokens | None = None,
) -> Tensor:
    """What a step lowers: mean over the targets that came, in nats.

    Args:
        logits: per level [N, V_l].
        batch: of N targets; behind those that came, the drawn ones where there is ``valid``. One
            of -1 at all levels is none.
        settings: how to train.
        teacher: per level [N, V_l]; the teacher's logits under the same prefixes. Under drawn ones
            its opinion is all there is to learn.
        valid: charges what no item can have.
    """
    came = len(batch.targets) - batch.drawn
    loss = came * spelling_loss(
        [said[:came] for said in logits],
        batch.targets[:came],
        label_smoothing=settings.label_smoothing,
        teacher=None if teacher is None else [said[:came] for said in teacher],
        teacher_share=settings.teacher_share,
    )
    if valid is not None:
        loss = loss + settings.validity * valid.cost(logits, batch.targets)
    if teacher is not None and batch.drawn:
        taught = _taught(
            [said[came:] for said in logits],
            batch.targets[came:].unbind(1),
            [said[came:] for said in teacher],
        )
        loss = loss + settings.teacher_share * taught
    return loss / (batch.targets[:came, 0] >= 0).sum().clamp(min=1)


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
        taught = _taught([said], [wanted], [teacher[level]])
        total = total + (1 - teacher_share) * own + teacher_share * taught
    return total / max(1, len(targets))


def _taught(logits: Sequence[Tensor], codes: Sequence[Tensor], teacher: Sequence[Tensor]) -> Tensor:
    """Sum of the cross-entropies with a teacher's distributions; where the code is -1, none."""
    total = logits[0].new_zeros((), dtype=torch.float32)
    for said, code, opinion in zip(logits, codes, teacher, strict=True):
        cost = F.cross_entropy(said.float(), torch.softmax(opinion.float(), -1), reduction="none")
        total = total + torch.where(code >= 0, cost, 0.0).sum()
    return total
