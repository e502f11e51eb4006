"""Wide: an encoder-decoder whose decoder is made for wide beams and short semantic IDs.

After GRACE ("Generative Recommender Acceleration Engine", sections 2.3 and 2.4): an encoder leaves
context tokens, and a pre-norm decoder of self-attention, cross-attention and feed-forward layers
spells the next item. Here it is trained; ``weights`` and ``scorer`` are how it decodes.

Notation: B histories of T items, L levels, V_l codebook sizes, d the width, N targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from beamsieve.models.layers import Layers
from beamsieve.models.model import Model
from beamsieve.models.wide import laws
from beamsieve.models.wide.config import WideConfig, check_codebooks
from beamsieve.models.wide.encoder import Encoder, make_encoder
from beamsieve.models.wide.launch import why_not
from beamsieve.models.wide.layers import DecoderLayer
from beamsieve.models.wide.scorer import WideScorer
from beamsieve.models.wide.weights import WideWeights, weights_of

if TYPE_CHECKING:
    from beamsieve.models.batches import Batch


@dataclass(frozen=True)
class WideReading:
    """The context of B histories.

    Attributes:
        context: [B, C, d].
        lengths: int64 [B]; how many tokens of each are real.
    """

    context: Tensor
    lengths: Tensor

    def tensors(self) -> list[Tensor]:
        """Both."""
        return [self.context, self.lengths]

    def __len__(self) -> int:
        return len(self.lengths)


class Wide(Model):
    """Encoder, decoder and one output head per level.

    Args:
        config: the sizes.
        codebooks: V_l per level, as the index's tables use them; 2 to 8 levels of at most 16 384.
        encoder: in place of the one that the config names; a checkpoint can only be loaded where
            the config names it.

    Raises:
        InputError: codebooks that the decoder does not serve.
    """

    def __init__(
        self, config: WideConfig, codebooks: Sequence[int], encoder: Encoder | None = None
    ) -> None:
        super().__init__(config, check_codebooks(codebooks))
        self.config: WideConfig = config
        d = config.width
        self.encoder: Encoder = make_encoder(config, self.codebooks) if encoder is None else encoder
        self.start = nn.Parameter(torch.empty(d))
        # Each level has codes of its own, so a code says its position, too.
        self.codes = Layers[nn.Embedding](nn.Embedding(size, d) for size in self.codebooks[:-1])
        self.layers = Layers[DecoderLayer](DecoderLayer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(d, laws.EPSILON)
        self.heads = Layers[nn.Linear](nn.Linear(d, size, bias=False) for size in self.codebooks)
        self.dropout = nn.Dropout(config.dropout)
        self._made: tuple[tuple[object, ...], WideWeights] | None = None
        self.reset()

    def reset(self) -> None:
        """Draw the weights: N(0, 0.02), and N(0, 1/width) for embeddings.

        Embeddings are multiplied by the square root of their width where they are read, so their
        values enter the network with variance 1.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        nn.init.normal_(self.start, std=self.config.width**-0.5)

    def read(self, histories: Tensor, lengths: Tensor) -> WideReading:
        """The context of histories int64 [B, T, L]; the first lengths [B] items are real."""
        return WideReading(self.encoder.states(histories), lengths + 1)

    def spell(self, states: Tensor, seen: Tensor, prefixes: Tensor) -> Tensor:
        """Hidden states [B, n, p + 1, d] before each next token of prefixes int64 [B, n, p].

        Args:
            states: [B, C, d]; context tokens.
            seen: bool [n, C] or [B, n, C]; which of them each of a history's n targets sees.
            prefixes: of each target; the state before level l + 1 depends on the first l alone.
        """
        scale = self.config.width**0.5
        start = self.start.expand(*prefixes.shape[:2], 1, -1)
        codes = [
            self.codes[level](prefixes[..., level : level + 1])
            for level in range(prefixes.shape[2])
        ]
        x = self.dropout(torch.cat([start, *codes], 2) * scale)
        for layer in self.layers:
            x = layer(x, states, seen)
        hidden: Tensor = self.norm(x)
        return hidden

    def logits(self, batch: Batch) -> list[Tensor]:
        """Per level, [N, V_l]: logits of each target's code, given the codes before it."""
        states = self.encoder.states(batch.histories)
        columns = states.shape[1]
        # Every place of every history is spelt, so that a history's context is read once.
        grid = batch.targets.new_zeros(len(states), columns, self.levels - 1)
        grid[batch.rows, batch.places] = batch.targets[:, :-1].clamp(min=0)
        seen = torch.ones(columns, columns, dtype=torch.bool, device=states.device).tril()
        hidden = self.spell(states, seen, grid)[batch.rows, batch.places]
        return [head(hidden[:, level]) for level, head in enumerate(self.heads)]

    def scorer(self, reading: WideReading, widths: Sequence[int]) -> WideScorer:
        """One search's: Triton's kernels in bfloat16 where they can run, else PyTorch in float32.

        ``WideDecoder`` is for many searches: it keeps its buffers, and captures graphs.
        """
        kernels = not why_not(self.start.device)
        weights = self._weights_now(kernels=kernels)
        batch, columns = reading.context.shape[:2]
        score = WideScorer(weights, batch, widths, columns)
        score.load(reading.context, reading.lengths)
        return score

    def _weights_now(self, *, kernels: bool) -> WideWeights:
        """The weights as a search reads them, made again when one of them has changed."""
        state = (kernels, *((p.data_ptr(), p._version) for p in self.parameters()))
        if self._made is None or self._made[0] != state:
            dtype = torch.bfloat16 if kernels else torch.float32
            self._made = (state, weights_of(self, dtype, kernels=kernels))
        return self._made[1]
