"""The engine: one index on one backend, and the beam search that a model drives step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from beamsieve import checks
from beamsieve.errors import BackendError, InputError
from beamsieve.interface import Beams, Candidates, PreparedHead
from beamsieve.opening import opened, prepared
from beamsieve.plan import Plan, planned
from beamsieve.results import RequestHits, hits_of_beams
from beamsieve.served import Served
from beamsieve.warmup import measured_plan

Score = Callable[[int, Beams], Any]
"""``score(step, beams)``: for the step about to be decoded, counted from 1, the logits, or
(hidden, head), or (hidden, head, bias)."""


class Engine(Served):
    """Decode an index with a backend.

    Every array that a call takes may be anything with DLPack or the array interface, on the
    engine's device; every array that it returns is the backend's own, on that device. All methods
    may be called from several threads at once.

    Args:
        index: what to decode.
        backend: a config string ``name[:device][?option=value&…]``; "auto", or None for the
            environment variable BEAMSIEVE_BACKEND and "auto" without one. An opened ``Backend``
            is taken as it is.
        normalize: over which tokens log-probabilities are taken: "catalog" (those that may follow
            the beam), "eligible" (those that targeting keeps too) or "all" (the whole codebook).
        plan: a plan that ``warm_up`` made for this device and index.

    Raises:
        BackendError: the backend is not installed, or cannot serve this index.
        InputError: an unknown normalizer, or a plan for something else.
    """

    def begin(
        self,
        batch: int | None = None,
        requests: Sequence[Any] | None = None,
        prefix: Any = None,
    ) -> Beams:
        """The beams before the first step: one per request, at the root or at its prefix.

        Args:
            batch: B; may be left out where ``requests`` or ``prefix`` says it.
            requests: per request a dict of what is known of its viewer, by attribute, with
                ``allow`` (only these items) and ``exclude`` (not these items) if wanted; None for
                a request without targeting. ``{}`` says that nothing is known of the viewer.
            prefix: [B, p] tokens that each request's semantic IDs must begin with. A prefix that
                no semantic ID begins with leaves its request empty.

        Raises:
            InputError: a batch below 1, or prefixes that do not fit it.
            RequestError: a request cannot be read.
            BackendError: the backend cannot decide what a request asks for.
        """
        return self._backend.begin(*opened(self._backend, self._loaded, batch, requests, prefix))

    def step(
        self,
        beams: Beams,
        width: int,
        *,
        hidden: Any = None,
        head: Any = None,
        bias: Any = None,
        logits: Any = None,
        bonus: Any = None,
        nudge: Any = None,
    ) -> Beams:
        """Decode one level: the ``width`` best of all valid continuations of each request.

        B requests, M places (``beams.width``), V the level's codebook, d the hidden size.

        Args:
            beams: from ``begin`` or the step before.
            width: how many beams to keep per request.
            hidden: [B, M, d], with ``head``.
            head: [V, d], in the dtype of ``hidden``; or what ``prepare_head`` made of it.
            bias: [V].
            logits: [B, M, V], in place of hidden and head.
            bonus: float32 [B, M, V]; joins the score and is carried on.
            nudge: float32 [B, M, V]; counts in this step's choice alone.

        Raises:
            InputError: a wrong shape, dtype or device, or no level left.
            BackendError: the backend cannot do what is asked.
        """
        checks.own_beams(self._backend, beams)
        width = checks.width_for(self._backend, width, beams.search.batch)
        inputs = checks.step_inputs(
            self._backend, beams, width, hidden, head, bias, logits, bonus, nudge
        )
        inputs = replace(inputs, projection=planned(beams, inputs))
        return self._backend.step(beams, inputs, self.normalize)

    def candidates(
        self,
        beams: Beams,
        *,
        hidden: Any = None,
        head: Any = None,
        bias: Any = None,
        logits: Any = None,
        bonus: Any = None,
    ) -> Candidates:
        """The first half of a step: every valid continuation of every beam, scored.

        Arguments and errors are those of ``step``.
        """
        self._needs_halves()
        checks.own_beams(self._backend, beams)
        inputs = checks.step_inputs(
            self._backend, beams, beams.width, hidden, head, bias, logits, bonus, None
        )
        inputs = replace(inputs, projection=planned(beams, inputs))
        found = self._backend.candidates(beams, inputs, self.normalize)
        return replace(found, beams=beams, given=(found.tokens, found.rows))

    def select(self, beams: Beams, candidates: Candidates, width: int, key: Any = None) -> Beams:
        """The second half: keep the ``width`` best candidates of each request.

        Args:
            beams: the beams that the candidates came from.
            candidates: from ``candidates``; its scores may be changed with
                ``dataclasses.replace``.
            width: how many beams to keep per request.
            key: float32 [B, M, S], what to rank by; the candidates' scores when None.

        Raises:
            InputError: candidates of other beams, or whose tokens or rows were replaced, or a wrong
                shape, dtype or device.
            BackendError: the backend cannot do what is asked.
        """
        self._needs_halves()
        checks.own_beams(self._backend, beams)
        checks.own_candidates(beams, candidates)
        width = checks.width_for(self._backend, width, beams.search.batch)
        scores = checks.slot_values(
            self._backend, candidates.rows, candidates.scores, "candidates.scores"
        )
        candidates = replace(candidates, scores=scores)
        keys = None
        if key is not None:
            keys = checks.slot_values(self._backend, candidates.rows, key, "key")
        return self._backend.select(beams, candidates, width, keys)

    def search(
        self,
        score: Score,
        widths: Sequence[int],
        batch: int | None = None,
        requests: Sequence[Any] | None = None,
        prefix: Any = None,
        graph: bool = False,
    ) -> Beams:
        """All steps: ``score(step, beams)`` is asked for each level, from 1.

        With ``graph`` the whole loop is captured in a CUDA graph at the first call, and replayed
        at every later one of the same shape (``beamsieve.graphs``): the same beams, bit for bit,
        without the host's work for each kernel. ``score`` is then called during the capture only.
        It must do the same device work every time, wait for nothing and read nothing on the host;
        what it reads besides ``beams`` must keep its place in device memory, and be filled before
        each search. Pass the same ``score`` object each time: another one is captured anew.

        Args:
            score: returns (hidden, head), (hidden, head, bias) or logits, shaped as ``step`` says.
            widths: one per level that the prefix leaves.
            batch: as in ``begin``.
            requests: as in ``begin``.
            prefix: as in ``begin``.
            graph: whether to run as a CUDA graph; the capabilities say whether a backend can.

        Raises:
            BackendError: the search cannot be captured.
        """
        begin = opened(self._backend, self._loaded, batch, requests, prefix)
        search, tokens = begin[:2]
        if not callable(score):
            raise InputError(
                f"score is a {type(score).__name__}; give a function of the step and the beams."
            )
        levels = search.index.length - tokens.shape[1]
        widths = checks.widths_for(self._backend, widths, levels, search.batch)

        heads: list[PreparedHead] = []

        def loop(beams: Beams) -> Beams:
            for width in widths:
                said = score(beams.step + 1, beams)
                heads.extend(checks.prepared_heads(said))
                beams = self._scored_step(beams, width, said)
            return beams

        if graph:
            return self._graphs.search(*begin, widths, score, loop, heads)
        return loop(self._backend.begin(*begin))

    def _scored_step(self, beams: Beams, width: int, said: Any) -> Beams:
        if not isinstance(said, tuple):
            return self.step(beams, width, logits=said)
        if not 2 <= len(said) <= 3:
            raise InputError(
                f"score returned a tuple of {len(said)}; it must be (hidden, head) or "
                f"(hidden, head, bias)."
            )
        bias = said[2] if len(said) == 3 else None
        return self.step(beams, width, hidden=said[0], head=said[1], bias=bias)

    def prepare_head(self, head: Any) -> PreparedHead:
        """Do once what every step would do with a head whose numbers do not change.

        A step takes the result as its ``head``, and so do ``score`` and ``warm_up``; the beams are
        the same. On a GPU a float32 head is multiplied as two float16 parts of each number, which a
        step has to make of a head that it is given plain. Where there is nothing to make, the
        result holds the head alone.

        Args:
            head: [V, d], on the engine's device. It is kept, and must not be written to as long as
                the result is in use; after that, prepare it again.

        Raises:
            InputError: a wrong shape, dtype or device.
            BackendError: a stream is being captured, or the device has no memory left.
        """
        return prepared(self._backend, head)

    def results(self, beams: Beams, k: int = 10) -> list[RequestHits]:
        """Each request's ``k`` best items, or as many as there are.

        Several items on one semantic ID come in input order, under one score; an item that two
        semantic IDs reach counts once, at its best score. Where the search has targeting, the
        items' exact rules are applied, and each request's :class:`RequestHits` says how many items
        they removed.

        Raises:
            InputError: levels are left to decode, or k is below 1.
        """
        checks.own_beams(self._backend, beams)
        k = checks.whole_number(k, "k")
        return hits_of_beams(self._backend, beams, k)

    def warm_up(
        self,
        batch: int,
        widths: Sequence[int],
        head: Any,
        prefix: Any = None,
        repeats: int = 7,
    ) -> Plan:
        """Time every projection that the backend has in every step, and follow the fastest ones.

        The hidden states are rows of the head, so the beams spread over the catalog as a model's
        would not exactly, but as many of them as a model's.

        Args:
            batch: the number of requests to measure with.
            widths: one per level that the prefix leaves.
            head: [V, d], or one such per level that the prefix leaves, as a list or in one array
                [L, V, d]: the output embeddings, on the engine's device. Give them prepared where
                searches do.
            prefix: as in ``begin``.
            repeats: how often each step is timed; the medians decide.

        Returns:
            the plan, which searches that begin from now on follow.

        Raises:
            InputError: widths or heads that do not fit the levels, or another index came meanwhile.
            BackendError: the backend cannot keep so many beams, or cannot time anything now.
        """
        repeats = checks.whole_number(repeats, "repeats")
        self._backend.before_timing()
        beams = self.begin(batch, prefix=prefix)
        plan = measured_plan(self._backend, self.normalize, beams, widths, head, repeats)
        self.use_plan(plan)
        return plan

    def _needs_halves(self) -> None:
        if "candidates" not in self.capabilities.guidance:
            raise BackendError(
                f"The backend {self._backend.name!r} does not offer the two halves of a step."
            )

    def __repr__(self) -> str:
        return f"Engine({self.index!r}, backend={self.backend!r}, normalize={self.normalize!r})"
