"""Other people's models: a Hugging Face model with semantic-ID tokens, decoded by the engine.

A generator that is trained with ``transformers`` has the codes of semantic IDs among its
vocabulary: code v of level l is token ``ids[l][v]``. :class:`HuggingFaceScorer` asks such a model
for the logits of one level's tokens after another, and puts its key-value cache into the beams'
order by ``beams.parents``:

    model = AutoModelForSeq2SeqLM.from_pretrained(…)           # T5, BART, …
    ids = token_ranges(first=32_100, codebooks=index.codebooks)
    score = HuggingFaceScorer(model, ids, **tokenizer(texts, return_tensors="pt", padding=True))
    beams = engine.search(score, widths=[50] * index.length, batch=len(texts))

Decoder-only models (GPT-2, Qwen, …) need prompts that are padded on the left. Needs transformers:
``pip install 'beamsieve[hf]'``.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from beamsieve.errors import InputError
from beamsieve.models.scorer import SpeltBeams, as_tensor


def token_ranges(first: int, codebooks: Sequence[int]) -> list[range]:
    """Ids of semantic-ID tokens that stand one level after the other in a vocabulary.

    Args:
        first: the id of level 1's code 0.
        codebooks: V_l per level.
    """
    ranges = []
    for size in codebooks:
        ranges.append(range(first, first + size))
        first += size
    return ranges


class HuggingFaceScorer:
    """``score`` for ``engine.search`` from a model of ``transformers``.

    The prompts are read at the first step of every search. One scorer serves one search after the
    other, not two at once.

    Args:
        model: encoder-decoder or decoder-only, in evaluation mode, with a language-model head.
        ids: per level, the id of every code's token, in the order of the codes.
        input_ids: int64 [B, T]; the prompts.
        attention_mask: [B, T]; 0 where a prompt is padded. All of it counts when None. Padding
            must be on the left for a decoder-only model.
        decoder_start: the token that an encoder-decoder model's output begins with; its config
            says when None.

    Raises:
        InputError: an id is outside of the model's vocabulary, a prompt is empty or padded on the
            wrong side, the mask has another shape, or no start is known.
    """

    def __init__(
        self,
        model: Any,
        ids: Sequence[Sequence[int]],
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_start: int | None = None,
    ) -> None:
        self.model = model
        self.device = input_ids.device
        self.ids = [torch.tensor(list(level), device=self.device) for level in ids]
        self.prompt = input_ids
        self.mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        self.encodes = bool(getattr(model.config, "is_encoder_decoder", False))
        self.start = decoder_start
        if self.encodes and decoder_start is None:
            self.start = getattr(model.config, "decoder_start_token_id", None)
        self._check(model.get_output_embeddings().weight.shape[0])
        # The argument that takes the cache has had two names.
        known = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in known else "past_key_values"
        self._next = 0
        self._search: object = None
        self._spelt, self._width = 0, 1
        self._seen = self.mask
        self._cache: Any = None
        self._encoded: Any = None

    def _check(self, vocabulary: int) -> None:
        for level, own in enumerate(self.ids, 1):
            if not len(own) or int(own.min()) < 0 or int(own.max()) >= vocabulary:
                raise InputError(
                    f"Level {level}'s tokens are not all among the model's {vocabulary}; add them "
                    "to its vocabulary (resize_token_embeddings), or mend the offsets."
                )
        if self.mask.shape != self.prompt.shape:
            raise InputError(
                f"attention_mask has the shape {tuple(self.mask.shape)}, input_ids "
                f"{tuple(self.prompt.shape)}; give one number per token."
            )
        if not self.prompt.numel() or not bool(self.mask.bool().any(1).all()):
            raise InputError("A prompt is empty; give the model at least one token to read.")
        if self.encodes and self.start is None:
            raise InputError("The model's config names no start token; give decoder_start.")
        if not self.encodes and not bool(self.mask[:, -1].bool().all()):
            raise InputError(
                "A prompt is padded on the right; a decoder-only model needs the left."
            )

    @torch.no_grad()
    def __call__(self, step: int, beams: SpeltBeams) -> Tensor:
        """Logits [B, W, V_l] of level ``step``, from 1."""
        search = getattr(beams, "search", None)
        if step != self._next or search is not self._search:
            self._read()
        tokens = as_tensor(beams.tokens, self.device).long()
        batch, width = tokens.shape[:2]
        if batch != len(self.prompt) or step > len(self.ids):
            raise InputError(
                f"This scorer has {len(self.prompt)} prompts and tokens of {len(self.ids)} levels; "
                f"step {step} of a search of {batch} requests was asked for."
            )
        request = torch.arange(batch, device=self.device)[:, None]
        if self._spelt:
            parents = as_tensor(beams.parents, self.device).long().clamp(min=0)
            self._reorder((request * self._width + parents).flatten())
        elif width > 1:
            self._reorder(request.expand(-1, width).flatten())
        self._width = width
        # One token per step; more only where the search began with a prefix.
        while self._spelt < step - 1:
            # Places without a beam have no token; whatever they are given is never read.
            codes = tokens[:, :, self._spelt].clamp(min=0)
            self._append(self.ids[self._spelt][codes].reshape(-1, 1))
            self._spelt += 1
        self._next, self._search = step + 1, search
        logits: Tensor = self._logits.index_select(-1, self.ids[step - 1])
        return logits.reshape(batch, width, -1).float()

    def _read(self) -> None:
        """Read the prompts; the logits of the first token."""
        self._spelt, self._width = 0, 1
        self._seen = self.mask
        self._cache = None
        self._encoded = None
        if self.encodes:
            encoder = self.model.get_encoder()
            self._encoded = encoder(input_ids=self.prompt, attention_mask=self.mask)
            self._append(torch.full_like(self.prompt[:, :1], int(self.start or 0)))
            return
        places = (self.mask.long().cumsum(-1) - 1).clamp(min=0)
        self._ask(input_ids=self.prompt, attention_mask=self.mask, position_ids=places)

    def _append(self, tokens: Tensor) -> None:
        """Read one more token per beam, int64 [n, 1]."""
        if self.encodes:
            self._ask(
                decoder_input_ids=tokens, encoder_outputs=self._encoded, attention_mask=self._seen
            )
            return
        self._seen = torch.cat([self._seen, torch.ones_like(self._seen[:, :1])], 1)
        places = self._seen.long().sum(1, keepdim=True) - 1
        self._ask(input_ids=tokens, attention_mask=self._seen, position_ids=places)

    def _ask(self, **given: Any) -> None:
        given[self._cache_name] = self._cache
        said = self.model(**given, use_cache=True, return_dict=True)
        self._cache = said[self._cache_name]
        self._logits: Tensor = said.logits[:, -1]

    def _reorder(self, order: Tensor) -> None:
        """Every beam's past becomes that of the place ``order`` names."""
        assert self._cache is not None
        self._cache.reorder_cache(order)
        self._seen = self._seen[order]
        self._logits = self._logits[order]
        if self._encoded is not None:
            states = self._encoded.last_hidden_state[order]
            self._encoded = type(self._encoded)(last_hidden_state=states)
