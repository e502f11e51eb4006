"""The tokens that beams have spelt: their keys and values, and attention over all there is."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation names it

from beamsieve.errors import InputError
from beamsieve.models.deco import Deco
from beamsieve.models.generator import Context, Generator, Reading
from beamsieve.models.layers import Block
from beamsieve.models.wide.launch import cdiv, launch, power_of_two, why_not

LONGEST_CONTEXT = 8
"""Concepts that the kernels' loops, which are written out, are made for."""
_ATTENDED = 1024
"""Values of queries per program of the attention's kernel."""
_READ = 2048
"""Values per program of the kernels that read and add."""


class SpeltTokens:
    """Keys and values of the tokens that each beam has spelt, and attention over all there is."""

    def __init__(self, model: Generator, context: Context) -> None:
        self.count = 0
        self.first = context.first
        self._model = model
        self._context = context
        self._own: list[Tensor] = []  # per layer [B, W, 2, heads, count, e / heads]
        self._hidden = None if context.seen is None else ~context.seen[:, None, None]

    def reorder(self, parents: Tensor) -> None:
        """Put the beams into the order of parents [B, W]; -1 where there is no beam."""
        parents = parents.long().clamp(min=0)
        request = torch.arange(len(parents), device=parents.device)[:, None]
        self._own = [kept[request, parents] for kept in self._own]

    def append(self, tokens: Tensor) -> Tensor:
        """Read one more code per beam of tokens [B, W, count + 1 or more]; the states [B, W, e].

        Places without a beam have token -1; whatever is read for them is never used.
        """
        prefixes = tokens[:, :, : self.count + 1].long().clamp(min=0)
        x = self._model.token(prefixes, self._context)
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


class ReadCodes:
    """What a Deco's decoder reads for each code of each level, and its first layer's products.

    A code is read the same whatever stands before it, so as many rows as there are codes do for
    all beams of all searches; they are of the weights as they are now.

    Attributes:
        starts: int64 [L - 1]; a code of level l is row ``starts[l] + code``.
        table: [rows, e]; what is read.
        products: [rows, 3 * e]; queries, keys and values.
    """

    def __init__(self, model: Deco) -> None:
        with torch.no_grad():
            places = model.spelling_positions.weight[model.config.concepts :].float()
            tables = [
                (codes.weight.float() + place) * model.config.decoder_width**0.5
                for codes, place in zip(model.prefix_codes, places, strict=True)
            ]
            sizes = torch.tensor([len(table) for table in tables], device=places.device)
            self.starts = sizes.cumsum(0) - sizes
            block = model.spelling[0]
            joined = torch.cat([*tables, places.new_empty((0, places.shape[1]))])
            self.table = joined.to(block.queries_keys_values.weight.dtype)
            products: Tensor = block.queries_keys_values(block.attention_norm(self.table))
            self.products = products


class SpeltByKernel(SpeltTokens):
    """The same, of a Deco, with what stands between the products in kernels of its own."""

    def __init__(self, model: Deco, context: Context, read: ReadCodes) -> None:
        super().__init__(model, context)
        self._deco = model
        self._read = read
        self._parents: Tensor | None = None

    @staticmethod
    def opened(model: Deco, concepts: Tensor) -> Context:
        """What :meth:`Deco.open` gives for concepts [B, M, e]."""
        from beamsieve.models.spelling_kernel import open_attention

        layers = [*model.spelling]
        norms = [*(block.attention_norm for block in layers[1:]), model.spelling_norm]
        x, keys, values = model.place(concepts, 0).contiguous(), [], []
        normed = layers[0].attention_norm(x)
        for block, norm in zip(layers, norms, strict=True):
            product = block.queries_keys_values(normed)
            mixed = torch.empty_like(x)
            rows = _rows(x.shape[-1])
            launch(
                open_attention,
                cdiv(len(x), rows),
                *(product, mixed, len(x), (x.shape[-1] // block.heads) ** -0.5),
                M=x.shape[1],
                H=block.heads,
                D=x.shape[-1] // block.heads,
                ROWS=rows,
            )
            # [B, M, 3, heads, e / heads] → [B, heads, M, e / heads]
            parts = product.unflatten(-1, (3, block.heads, -1)).transpose(1, 3)
            keys.append(parts[:, :, 1])
            values.append(parts[:, :, 2])
            mixed = block.attention_out(mixed)
            normed = _added(x, mixed, block.feed_norm)
            normed = _added(x, block.feed_out(_fed(normed, block.feed_in)), norm)
        return Context(tuple(keys), tuple(values), None, normed[:, -1].contiguous(), None)

    def reorder(self, parents: Tensor) -> None:
        """Put the beams into the order of parents [B, W]: when the next token is read."""
        self._parents = parents.contiguous()

    def append(self, tokens: Tensor) -> Tensor:
        """Read one more code per beam of tokens [B, W, count + 1 or more]; the states [B, W, e]."""
        if self._parents is None:
            self._parents = torch.arange(tokens.shape[1], device=tokens.device).repeat(
                len(tokens), 1
            )
        layers = [*self._deco.spelling]
        norms = [*(block.attention_norm for block in layers[1:]), self._deco.spelling_norm]
        x, mixed = self._first(tokens, layers[0].heads)
        normed = x
        for layer, (block, norm) in enumerate(zip(layers, norms, strict=True)):
            if layer:
                mixed = self._mix(layer, block, block.queries_keys_values(normed))
            normed = _added(x, block.attention_out(mixed), block.feed_norm)
            normed = _added(x, block.feed_out(_fed(normed, block.feed_in)), norm)
        self.count += 1
        self._parents = None
        return normed

    def _first(self, tokens: Tensor, heads: int) -> tuple[Tensor, Tensor]:
        """What the decoder reads for the next code, [B, W, e], and its first layer's attention."""
        from beamsieve.models.spelling_kernel import first_attention

        batch, width = tokens.shape[:2]
        read = self._read
        e = read.table.shape[1]
        x = read.table.new_empty((batch, width, e))
        mixed = torch.empty_like(x)
        keys, values = self._keys_values(0)
        rows = power_of_two(max(1, _ATTENDED // e))
        launch(
            first_attention,
            cdiv(batch * width, rows),
            *(tokens, read.starts, read.table, read.products, keys, values, x, mixed),
            *(batch * width, width, (e // heads) ** -0.5),
            *(tokens.stride(0), tokens.stride(1), tokens.stride(2)),
            *(keys.stride(0), keys.stride(1), keys.stride(2)),
            warps=4 if rows * e >= 128 else 2,
            T=self.count + 1,
            C=keys.shape[2],
            H=heads,
            D=e // heads,
            ROWS=rows,
        )
        return x, mixed

    def _keys_values(self, layer: int) -> tuple[Tensor, Tensor]:
        """The context's, laid out alike."""
        keys, values = self._context.keys[layer], self._context.values[layer]
        # Values may lie otherwise than keys only if someone else made them.
        if values.stride() != keys.stride():
            return keys.contiguous(), values.contiguous()
        return keys, values

    def _mix(self, layer: int, block: Block, product: Tensor) -> Tensor:
        """[B, W, e]: attention of product [B, W, 3 * e], the beams brought into their order."""
        from beamsieve.models.spelling_kernel import spell_attention

        assert self._parents is not None
        batch, width, whole = product.shape
        heads, size = block.heads, whole // 3 // block.heads
        mixed = product.new_empty((batch, width, heads * size))
        last = self.count + 2 == self._deco.levels  # nothing will ask for its keys and values
        own = product.new_empty((batch, width, 0 if last else self.count + 1, 2, heads * size))
        keys, values = self._keys_values(layer)
        before = self._own[layer - 1] if self.count else own
        rows = power_of_two(max(1, _ATTENDED // (heads * size)))
        launch(
            spell_attention,
            cdiv(batch * width, rows),
            *(product, before, self._parents, keys, values, mixed, own),
            *(batch * width, width, before.shape[1], size**-0.5),
            *(keys.stride(0), keys.stride(1), keys.stride(2)),
            warps=4 if rows * heads * size >= 128 else 2,
            T=self.count + 1,
            C=keys.shape[2],
            H=heads,
            D=size,
            ROWS=rows,
            LAST=last,
        )
        if self.count:
            self._own[layer - 1] = own
        else:
            self._own.append(own)
        return mixed


def _fed(x: Tensor, layer: nn.Linear) -> Tensor:
    """GELU of a layer's answer; in half precision on a GPU both are one kernel of cuBLAS.

    Its GELU is the tanh form, which differs from the exact one by at most 0.0005.
    """
    if x.is_cuda and x.dtype in (torch.bfloat16, torch.float16):
        rows = x.flatten(0, -2)
        fed: Tensor = torch._addmm_activation(layer.bias, rows, layer.weight.t(), use_gelu=True)
        return fed.reshape(*x.shape[:-1], -1)
    return F.gelu(layer(x))


def _added(x: Tensor, more: Tensor, norm: nn.Module) -> Tensor:
    """x [B, W, e] gets ``more`` added in its place; the norm of the sum."""
    from beamsieve.models.spelling_kernel import add_norm

    e = x.shape[-1]
    count = x.numel() // e
    normed = torch.empty_like(x)
    launch(
        add_norm,
        cdiv(count, _rows(e)),
        *(x, more.contiguous(), norm.weight, norm.bias, normed, count),
        E=e,
        ROWS=_rows(e),
        EPSILON=norm.eps,
    )
    return normed


def _rows(width: int) -> int:
    """Rows of so many values that one program reads."""
    return power_of_two(max(1, _READ // width))


def spelt_tokens(
    model: Generator, reading: Reading, kernel: bool, read: ReadCodes | None = None
) -> SpeltTokens:
    """The spelt tokens of one search, none so far, by the plain layers or by the kernels.

    ``read`` is the kernels': made once, it serves every search with the same weights.

    Raises:
        InputError: the kernels are asked for and cannot serve.
    """
    if not kernel:
        return SpeltTokens(model, model.open(reading))
    if not isinstance(model, Deco) or reading.concepts is None:
        raise InputError("The spelling kernels cannot serve: they are for a Deco.")
    reason = _why_not(model, reading.concepts)
    if reason:
        raise InputError(f"The spelling kernels cannot serve: {reason}.")
    context = SpeltByKernel.opened(model, reading.concepts)
    return SpeltByKernel(model, context, read or ReadCodes(model))


def _why_not(model: Deco, concepts: Tensor) -> str:
    reason = why_not(concepts.device)
    if reason:
        return reason
    if concepts.shape[1] > LONGEST_CONTEXT:
        return f"there are more than {LONGEST_CONTEXT} concepts"
    heads, size = model.config.heads, model.config.decoder_width // model.config.heads
    if heads & (heads - 1) or size & (size - 1) or size < 8 or heads * size > 1024:
        return f"{heads} heads of {size} values are no powers of two, or too many"
    return ""
