"""What the specification says about each thing that can go wrong, and where it says so.

A failure belongs to a rule: the comparison names the one that it found broken; where a test has a
check of its own, it is the rule of the test's module.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        broken: what is wrong when it is broken, as a heading.
        says: the rule, word for word as its file has it.
        file: in this repository.
        section: the function or the heading in that file.
    """

    broken: str
    says: str
    file: str
    section: str


STEP, BEAMS, TRIE = (f"spec/beamsieve_spec/{name}.py" for name in ("step", "beams", "trie"))
CONTRACT, INTERFACE = "docs/contract.md", "src/beamsieve/interface.py"

RULES = {
    # What the comparison of a step finds
    "form": Rule(
        "beams have a wrong shape or dtype",
        "tokens: int32 [B, M, t]; -1 behind the end of a finished SID, and in padding.",
        BEAMS,
        "class Beams",
    ),
    "padding": Rule(
        "a place without a beam is not empty",
        "The empty places behind them are padding: score and key -inf, token, row and parent -1.",
        BEAMS,
        "What a beam carries",
    ),
    "finite": Rule(
        "a beam is kept whose score or key is no number",
        "A candidate whose score or key is -inf, NaN or +inf never wins.",
        STEP,
        "What dies",
    ),
    "ties": Rule(
        "equal keys stand in the wrong order",
        "Higher key; then lower parent place; then lower token.",
        STEP,
        "The order",
    ),
    "order": Rule(
        "beams are not ordered by their keys",
        "Higher key; then lower parent place; then lower token.",
        STEP,
        "The order",
    ),
    "count": Rule(
        "too few or too many beams are kept",
        "With fewer candidates than ``width``, the rest of the places is padding.",
        STEP,
        "def select",
    ),
    "candidates": Rule(
        "other tokens are candidates than those that may follow",
        "kept = [v for v in valid if permits is None or permits(b, (*prefix, v))]",
        STEP,
        "1: candidates",
    ),
    "history": Rule(
        "a beam does not go on from its parent's tokens",
        "parents: int64 [B, M]; the beam's place one step earlier; -1 where there was none.",
        BEAMS,
        "class Beams",
    ),
    "rows": Rule(
        "a beam has the wrong row",
        "rows: int64 [B, M]; a live beam's row in table t + 1, a finished beam's leaf.",
        BEAMS,
        "class Beams",
    ),
    "finished": Rule(
        "finished beams are not marked as such",
        "A beam whose SID is complete is *finished*: its row is its leaf, and it stays in the "
        "competition unchanged while others go on.",
        BEAMS,
        "What a beam carries",
    ),
    "scores": Rule(
        "scores are wrong",
        "score = beams.scores[b, m] + log_p[v] + bonus[b, m, v]",
        STEP,
        "4: score",
    ),
    "keys": Rule(
        "keys are wrong",
        "Keys [B, M, S]: score plus ``nudge[b, m, token]``; a finished beam's key is its score.",
        STEP,
        "def add_nudge",
    ),
    "best": Rule(
        "better candidates are left out",
        "every candidate scored, and the ``width`` best of each request kept.",
        STEP,
        "6: the best of all beams",
    ),
    # What the modules of the suite are about
    "test_arrays": Rule(
        "arrays do not go in or come out as they should",
        "Inputs are anything with DLPack or the array interface; outputs are the backend's own "
        "arrays, on its device.",
        CONTRACT,
        "Backends",
    ),
    "test_awkward_numbers": Rule(
        "NaN, infinities or large numbers do harm",
        "It takes no place from another candidate, and it changes no other candidate's score.",
        STEP,
        "What dies",
    ),
    "test_batch": Rule(
        "a result depends on the batch, or varies",
        "What a request gets depends on nothing else in the batch: not on how many requests there "
        "are, which they are, or where among them it stands.",
        "conformance/beamsieve_conformance/agreement.py",
        "Requests are alone.",
    ),
    "test_beams": Rule(
        "beams begin, end or go on wrongly",
        "Each request has M places, filled from the front, best beam first; ``count`` says how "
        "many are filled.",
        BEAMS,
        "What a beam carries",
    ),
    "test_candidates": Rule(
        "the two halves of a step are wrong",
        "A slot holds a candidate exactly when its row is not -1. Tokens ascend within a beam;",
        STEP,
        "class Candidates",
    ),
    "test_flat_positions": Rule(
        "positions beyond 31 bits go astray",
        "rows: int64 [B, M]; a live beam's row in table t + 1, a finished beam's leaf.",
        BEAMS,
        "class Beams",
    ),
    "test_graph": Rule(
        "a captured search is not what it is outside of a graph",
        "the caller's beams must stay what they are after the next replay.",
        INTERFACE,
        "Run the graph for another search of the same shape",
    ),
    "test_memory": Rule(
        "memory is written to, or its old content shows",
        "A backend holds no state of a search: everything is in the ``Beams`` it returns, which "
        "stay what they are after later steps.",
        INTERFACE,
        "class Backend",
    ),
    "test_one_step": Rule(
        "a step is wrong",
        "Every live beam proposes the tokens that may follow it, each with a score; every finished "
        "beam proposes itself. The best proposals of a request become its next beams.",
        STEP,
        "One step",
    ),
    "test_order": Rule(
        "kept beams are not in the one right order",
        "No two candidates of a request agree in all three, so a step has one right answer.",
        STEP,
        "The order",
    ),
    "test_prefix": Rule(
        "searches from a prefix are wrong",
        "One beam per request, its score and key 0, at the root or at the request's own prefix.",
        BEAMS,
        "def begin",
    ),
    "test_prepared_heads": Rule(
        "a prepared head is not the head",
        "A step gives the same beams with it as without.",
        INTERFACE,
        "def prepare_head",
    ),
    "test_properties": Rule(
        "a random search is wrong",
        "A search takes a step for every level; its width may differ from step to step.",
        "spec/beamsieve_spec/search.py",
        "def search",
    ),
    "test_refusals": Rule(
        "what cannot be served is not refused in a sentence",
        "One that is not installed, or cannot serve the device, dtype or feature, is refused at "
        "once with what is installed and what is missing.",
        CONTRACT,
        "Backends",
    ),
    "test_search": Rule(
        "a whole search is wrong",
        "A search takes a step for every level; its width may differ from step to step.",
        "spec/beamsieve_spec/search.py",
        "def search",
    ),
    "test_tables": Rule(
        "tables are read wrongly",
        "an entry's position in table t *is* its row in t + 1's",
        TRIE,
        "The catalog as a trie",
    ),
    "test_targeted_searches": Rule(
        "targeted searches lose items, or show what they may not",
        "no eligible item is ever lost.",
        "spec/beamsieve_spec/targeting_matchers.py",
        "The law",
    ),
    "test_targeting": Rule(
        "targeting rules are read wrongly",
        "A request may go on to a prefix when any of its rows passes.",
        "spec/beamsieve_spec/targeting_matchers.py",
        "The matchers of the trie",
    ),
    "test_vectors": Rule(
        "searches are not as written down in the golden vectors",
        "Both halves: every candidate scored, and the ``width`` best of each request kept.",
        STEP,
        "def step",
    ),
}

OF_WHOLE_SEARCHES = {"test_properties", "test_search", "test_targeted_searches", "test_vectors"}
"""The rules that a test names where a search has ended otherwise than it should."""
