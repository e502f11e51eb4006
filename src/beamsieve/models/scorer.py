"""What the engine asks a model during a beam search, whichever of the family it is."""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.utils.dlpack
from torch import Tensor

from beamsieve.models.deco import Deco
from beamsieve.models.generator import Generator, Reading
from beamsieve.models.pointer import Copying, mixed
from beamsieve.models.spelling import ReadCodes, spelt_tokens


class SpeltBeams(Protocol):
    """The part of :class:`beamsieve.interface.Beams` that a scorer reads."""

    @property
    def tokens(self) -> Any:
        """Integers [B, W, t]."""

    @property
    def parents(self) -> Any:
        """Integers [B, W]."""


class BeamScorer:
    """``score`` for ``engine.search``: one new token per beam and step through the spelling layers.

    Keys and values of what all beams of a request share (a history, or Deco's concepts) are kept
    once per request; those of the tokens that a beam has spelt are put into the beams' new order
    by ``beams.parents``. One scorer serves one search after the other, not two at once. It waits
    for no device and its shapes follow from the search's, so that a search can be captured; a
    captured search reads the tensors of ``reading`` again at every replay (``reading.overwrite``).

    Args:
        model: in evaluation mode.
        reading: from ``model.read``.
        kernel: whether a Deco's decoder runs in Triton kernels of its own but for its products, on
            a GPU. It says the same to rounding, of the weights as they are when the scorer is made.

    Raises:
        InputError: the kernel is asked for and cannot serve; at the first step of a search.
    """

    def __init__(self, model: Generator, reading: Reading, kernel: bool = False) -> None:
        self.model = model
        self.reading = reading
        self.kernel = kernel
        # Made here, not in a search, which may be under capture.
        self._read = ReadCodes(model) if kernel and isinstance(model, Deco) else None
        self._next = 0
        self._search: object = None

    def __call__(self, step: int, beams: SpeltBeams) -> tuple[Tensor, Tensor, Tensor] | Tensor:
        """What level ``step``, from 1, is spelt from: hidden [B, W, e], head [V, e] and bias [V].

        With a pointer: the logarithms of the mixed probabilities [B, W, V].
        """
        search = getattr(beams, "search", None)
        with torch.no_grad():
            if step != self._next or search is not self._search:
                self._spelt = spelt_tokens(self.model, self.reading, self.kernel, self._read)
                self._copies = _begin(self.reading.copying)
            device = self._spelt.first.device
            tokens = as_tensor(beams.tokens, device)
            if self._spelt.count:
                parents = as_tensor(beams.parents, device)
                self._spelt.reorder(parents)
                if self._copies is not None:
                    self._copies.reorder(parents)
            hidden = self._spelt.first[:, None].expand(-1, tokens.shape[1], -1)
            # One token per step; more only where the search began with a prefix.
            while self._spelt.count < step - 1:
                if self._copies is not None:
                    codes = tokens[:, :, self._spelt.count].long().clamp(min=0)
                    self._copies.append(self._spelt.count, codes)
                hidden = self._spelt.append(tokens)
            self._next, self._search = step + 1, search
            head = self.model.heads[step - 1]
            if self._copies is None:
                return hidden, head.weight.detach(), head.bias.detach()
            return self._copies.mix(head(hidden), step - 1)


class _Copies:
    """Which items of the history each beam's prefix still matches."""

    def __init__(self, copying: Copying) -> None:
        self._copying = copying
        self._match: Tensor | None = None  # bool [B, W, T]

    def reorder(self, parents: Tensor) -> None:
        parents = parents.long().clamp(min=0)
        request = torch.arange(len(parents), device=parents.device)[:, None]
        if self._match is not None:
            self._match = self._match[request, parents]

    def append(self, level: int, codes: Tensor) -> None:
        same = self._copying.sids[:, None, :, level] == codes[..., None]
        self._match = same if self._match is None else self._match & same

    def mix(self, logits: Tensor, level: int) -> Tensor:
        copying = self._copying
        # An item whose semantic ID ended before this level has no code to give.
        weights = copying.weights * (copying.sids[..., level] >= 0)
        weights = weights[:, None].expand(-1, logits.shape[1], -1)
        if self._match is not None:
            weights = weights * self._match
        total = weights.sum(-1, keepdim=True)
        shares = weights / total.clamp(min=1e-30)
        codes = torch.arange(logits.shape[-1], device=logits.device)
        # A product, not a scatter: its sums have one order, whatever else runs on the device.
        spelt = (copying.sids[..., level, None] == codes).to(shares.dtype)  # [B, T, V]
        gate = torch.where(total > 0, copying.gate[:, None, None], 1.0)
        return mixed(logits, gate, shares @ spelt)


def _begin(copying: Copying | None) -> _Copies | None:
    return None if copying is None else _Copies(copying)


def as_tensor(array: Any, device: torch.device) -> Tensor:
    """Beams of any backend as tensors on the model's device, without a copy where possible."""
    tensor = array if isinstance(array, Tensor) else torch.utils.dlpack.from_dlpack(array)
    return tensor.to(device)
