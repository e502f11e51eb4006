"""The tokens that beams have spelt: their keys and values, and attention over all there is."""

from __future__ import annotations

import torch
from torch import Tensor

from beamsieve.errors import InputError
from beamsieve.models.generator import Context, Generator
from beamsieve.models.layers import Block
from beamsieve.models.wide.launch import cdiv, launch, power_of_two, why_not

LONGEST_CONTEXT = 16
"""Keys that every beam of a request shares; more of them are one matrix product per request."""


class SpeltTokens:
    """Keys and values of the tokens that each beam has spelt, and attention over all there is."""

    def __init__(self, model: Generator, context: Context) -> None:
        self.count = 0
        self._model = model
        self._context = context
        self._own: list[Tensor] = []  # per layer [B, W, 2, heads, count, e / heads]
        self._hidden = None if context.seen is None else ~context.seen[:, None, None]

    def reorder(self, parents: Tensor) -> None:
        """Put the beams into the order of parents int64 [B, W]."""
        request = torch.arange(len(parents), device=parents.device)[:, None]
        self._own = [kept[request, parents] for kept in self._own]

    def append(self, codes: Tensor) -> Tensor:
        """Read one more code per beam, int64 [B, W]; the states [B, W, e] behind it."""
        x = self._model.token(self.count, codes, self._context)
        for layer, block in enumerate(self._model.spelling):
            # Each beam is a sequence of one token: [B, W, heads, 1, e / heads].
            x = block.add(x[:, :, None], self._attend(layer, block, x))[:, :, 0]
        self.count += 1
        hidden: Tensor = self._model.spelling_norm(x)
        return hidden

    def _attend(self, layer: int, block: Block, x: Tensor) -> Tensor:
        """[B, W, heads, 1, e / heads]: over the request's context and the beam's own tokens.

        Beams are the queries of one product per request, so the context is never copied.
        """
        query, key, value = block.project(x[:, :, None])
        own = torch.stack([key, value], 2)
        if self.count:
            own = torch.cat([self._own[layer], own], -2)
            self._own[layer] = own
        else:
            self._own.append(own)
        context_keys, context_values = self._context.keys[layer], self._context.values[layer]
        asked = query[:, :, :, 0].transpose(1, 2) * query.shape[-1] ** -0.5  # [B, heads, W, _]
        shared = asked @ context_keys.transpose(-1, -2)  # [B, heads, W, C]
        if self._hidden is not None:
            shared = shared.masked_fill(self._hidden, -torch.inf)
        keys, values = own[:, :, 0].transpose(1, 2), own[:, :, 1].transpose(1, 2)
        alone = (asked[..., None, :] * keys).sum(-1)  # [B, heads, W, count]
        weights = torch.softmax(torch.cat([shared, alone], -1), -1)
        split = shared.shape[-1]
        mixed_values = weights[..., :split] @ context_values
        mixed_values = mixed_values + (weights[..., split:, None] * values).sum(-2)
        return mixed_values.transpose(1, 2)[..., None, :]


class SpeltByKernel(SpeltTokens):
    """The same in one kernel per layer and token, which also puts the beams into their order."""

    def __init__(self, model: Generator, context: Context) -> None:
        super().__init__(model, context)
        self._parents: Tensor | None = None

    def reorder(self, parents: Tensor) -> None:
        """Put the beams into the order of parents int64 [B, W]: when the next token is read."""
        self._parents = parents.contiguous()

    def append(self, codes: Tensor) -> Tensor:
        """Read one more code per beam, int64 [B, W]; the states [B, W, e] behind it."""
        if self._parents is None:
            self._parents = torch.arange(codes.shape[1], device=codes.device).repeat(len(codes), 1)
        hidden = super().append(codes)
        self._parents = None
        return hidden

    def _attend(self, layer: int, block: Block, x: Tensor) -> Tensor:
        from beamsieve.models.spelling_kernel import spell_attention

        product = block.queries_keys_values(block.attention_norm(x))
        batch, width, whole = product.shape
        heads, size = block.heads, whole // 3 // block.heads
        mixed: Tensor = product.new_empty((batch, width, heads, 1, size))
        own = product.new_empty((batch, width, self.count + 1, 2, heads * size))
        keys, values = self._context.keys[layer], self._context.values[layer]
        # Values may lie otherwise than keys only if someone else made them.
        values = values if values.stride() == keys.stride() else values.contiguous()
        keys = keys if values.stride() == keys.stride() else keys.contiguous()
        before = self._own[layer] if self.count else own
        rows = max(1, 128 // (heads * size))
        launch(
            spell_attention,
            cdiv(batch * width, rows),
            *(product, before, self._parents, keys, values, mixed, own),
            *(batch * width, width, before.shape[1], size**-0.5),
            *(keys.stride(0), keys.stride(1), keys.stride(2)),
            warps=4 if heads * size >= 128 else 2,
            T=self.count + 1,
            C=keys.shape[2],
            H=heads,
            D=size,
            ROWS=power_of_two(rows),
        )
        if self.count:
            self._own[layer] = own
        else:
            self._own.append(own)
        return mixed


def spelt_tokens(model: Generator, context: Context, kernel: bool) -> SpeltTokens:
    """The spelt tokens of one search, by the plain layers or by the kernel.

    Raises:
        InputError: the kernel is asked for and cannot serve.
    """
    if not kernel:
        return SpeltTokens(model, context)
    reason = _why_not(model, context)
    if reason:
        raise InputError(f"The spelling kernel cannot serve: {reason}.")
    return SpeltByKernel(model, context)


def _why_not(model: Generator, context: Context) -> str:
    reason = why_not(context.first.device)
    if reason:
        return reason
    if context.seen is not None or context.keys[0].shape[2] > LONGEST_CONTEXT:
        return f"the context is longer than {LONGEST_CONTEXT} keys, or of several lengths"
    heads, size = context.keys[0].shape[1], context.keys[0].shape[3]
    if heads & (heads - 1) or size & (size - 1) or size < 8 or heads * size > 1024:
        return f"{heads} heads of {size} values are no powers of two, or too many"
    return ""
