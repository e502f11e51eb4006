"""One layer of the decoder as it is trained: every position of a semantic ID at once."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation names it

from beamsieve.models.wide import laws
from beamsieve.models.wide.config import WideConfig


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and a feed-forward net, each behind its own norm.

    No product but the feed-forward net's first has a bias: that one's is added, and cut at zero, in
    the product's own epilogue; the others' epilogues add the residual stream.
    """

    def __init__(self, config: WideConfig) -> None:
        super().__init__()
        d, inner = config.width, config.inner
        self.shape = (config.heads, config.head_width)
        self.own_norm = nn.RMSNorm(d, laws.EPSILON)
        self.own_in = nn.Linear(d, 3 * inner, bias=False)
        self.own_out = nn.Linear(inner, d, bias=False)
        self.context_norm = nn.RMSNorm(d, laws.EPSILON)
        self.query = nn.Linear(d, inner, bias=False)
        self.context = nn.Linear(d, 2 * inner, bias=False)
        self.context_out = nn.Linear(inner, d, bias=False)
        self.feed_norm = nn.RMSNorm(d, laws.EPSILON)
        self.feed_in = nn.Linear(d, config.feed)
        self.feed_out = nn.Linear(config.feed, d, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, states: Tensor, seen: Tensor) -> Tensor:
        """x after this layer.

        Args:
            x: [B, n, p, d]; n targets per history, p positions each; a position attends to itself
                and those before it.
            states: [B, C, d], what every target of a history may see some of.
            seen: bool [n, C] or [B, n, C]; which of them each target sees.
        """
        queries, keys, values = self.own_in(self.own_norm(x)).unflatten(
            -1, (3, *self.shape)
        ).transpose(-2, -4).unbind(-3)  # fmt: skip
        mixed = F.scaled_dot_product_attention(
            queries.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1), is_causal=True
        )
        x = x + self.dropout(self.own_out(mixed.transpose(1, 2).flatten(-2).view(*x.shape[:3], -1)))
        # Targets and their positions are the queries of one sequence per history.
        asked = self.query(self.context_norm(x)).flatten(1, 2).unflatten(-1, self.shape)
        kept = self.context(states).unflatten(-1, (2, *self.shape))
        mask = seen.expand(len(x), -1, -1).repeat_interleave(x.shape[2], 1)[:, None]
        mixed = F.scaled_dot_product_attention(
            asked.transpose(1, 2),
            kept[:, :, 0].transpose(1, 2),
            kept[:, :, 1].transpose(1, 2),
            attn_mask=mask,
        )
        mixed = mixed.transpose(1, 2).flatten(-2).view(*x.shape[:3], -1)
        x = x + self.dropout(self.context_out(mixed))
        fed = self.feed_out(F.relu(self.feed_in(self.feed_norm(x))))
        added: Tensor = x + self.dropout(fed)
        return added
