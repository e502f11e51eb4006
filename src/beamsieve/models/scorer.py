"""What the engine asks a Deco during a beam search."""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.utils.dlpack
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation names it

from beamsieve.models.deco import Deco


class SpeltBeams(Protocol):
    """The part of :class:`beamsieve.interface.Beams` that a scorer reads."""

    @property
    def tokens(self) -> Any:
        """Integers [B, W, t]."""

    @property
    def parents(self) -> Any:
        """Integers [B, W]."""


class DecoScorer:
    """``score`` for one ``engine.search``: the light decoder, one new token per beam and step.

    Keys and values of the tokens spelt so far are kept per beam and put into the beams' new order
    by ``beams.parents``; those of the concepts are the same for all beams of a request. Make a
    new one for every search.

    Args:
        model: in evaluation mode.
        concepts: [B, M, e], from ``model.concepts``.
    """

    def __init__(self, model: Deco, concepts: Tensor) -> None:
        self._model = model
        self._spelt = 0
        self._concept_keys: list[Tensor] = []  # per layer [B, 1, heads, M, e / heads]
        self._concept_values: list[Tensor] = []
        self._keys: list[Tensor] = []  # per layer [B, W, heads, tokens spelt, e / heads]
        self._values: list[Tensor] = []
        with torch.no_grad():
            x = model.place(concepts, 0)
            for block in model.decoder:
                queries, keys, values = block.project(x)
                self._concept_keys.append(keys[:, None])
                self._concept_values.append(values[:, None])
                self._keys.append(keys[:, None, :, :0])
                self._values.append(values[:, None, :, :0])
                x = block.add(
                    x, F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
                )
            self._first = model.decoder_norm(x[:, -1:])

    def __call__(self, step: int, beams: SpeltBeams) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states [B, W, e], head [V, e] and bias [V] for step ``step``, from 1."""
        tokens = as_tensor(beams.tokens, self._first.device)
        with torch.no_grad():
            hidden = self._first.expand(-1, tokens.shape[1], -1)
            self._reorder(as_tensor(beams.parents, self._first.device))
            # One token per step; more only where the search began with a prefix.
            while self._spelt < step - 1:
                hidden = self._append(tokens[:, :, self._spelt])
        head = self._model.heads[step - 1]
        return hidden, head.weight.detach(), head.bias.detach()

    def _reorder(self, parents: Tensor) -> None:
        # Places without a beam have no parent; whatever they are given is never read.
        request = torch.arange(len(parents), device=parents.device)[:, None]
        parents = parents.long().clamp(min=0)
        self._keys = [keys[request, parents] for keys in self._keys]
        self._values = [values[request, parents] for values in self._values]

    def _append(self, tokens: Tensor) -> Tensor:
        """Read one more token per beam, int [B, W]; the hidden states behind it."""
        model = self._model
        x = model.prefix_codes[self._spelt](tokens.long().clamp(min=0))[:, :, None]
        x = model.place(x * model.config.decoder_width**0.5, model.config.concepts + self._spelt)
        beams = tokens.shape[1]
        for layer, block in enumerate(model.decoder):
            query, key, value = block.project(x)
            self._keys[layer] = torch.cat([self._keys[layer], key], -2)
            self._values[layer] = torch.cat([self._values[layer], value], -2)
            shared = self._concept_keys[layer].expand(-1, beams, -1, -1, -1)
            shared_values = self._concept_values[layer].expand(-1, beams, -1, -1, -1)
            mixed = F.scaled_dot_product_attention(
                query,
                torch.cat([shared, self._keys[layer]], -2),
                torch.cat([shared_values, self._values[layer]], -2),
            )
            x = block.add(x, mixed)
        self._spelt += 1
        hidden: Tensor = model.decoder_norm(x[:, :, 0])
        return hidden


def as_tensor(array: Any, device: torch.device) -> Tensor:
    """Beams of any backend as tensors on the model's device, without a copy where possible."""
    tensor = array if isinstance(array, Tensor) else torch.utils.dlpack.from_dlpack(array)
    return tensor.to(device)
