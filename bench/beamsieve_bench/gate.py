"""No number without right results: what a benchmark checks before it measures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import beamsieve as bs
import beamsieve_spec as spec
from beamsieve_bench.baselines import ScoreFirstTrie
from beamsieve_bench.catalogs import Workload, skewed_sids

if TYPE_CHECKING:
    from beamsieve_bench.stage_search import Inputs

_SMALL = Workload(3000, 96, 3)
_WIDTHS = (20, 40, 30)
_TOLERANCE = 2e-5


class GateError(AssertionError):
    """A backend's results are not right, so there is nothing to measure."""


def agrees_with_specification(config: str, normalize: Any, device: torch.device) -> str:
    """Decode a small skewed catalog and compare every step with the specification's.

    Raises:
        GateError: a beam differs by more than rounding.
    """
    sids = skewed_sids(_SMALL)
    codebooks = [_SMALL.vocabulary] * _SMALL.length
    trie = spec.Trie(sids.tolist(), codebooks=codebooks)
    index = bs.Index.build(bs.Catalog.from_arrays(sids, codebooks=codebooks))
    engine = bs.Engine(index, backend=config, normalize=normalize)
    draw = np.random.default_rng(0)
    beams, expected = engine.begin(2), spec.begin(trie, 2)
    for width in _WIDTHS:
        hidden = draw.normal(size=(2, beams.width, 16)).astype(np.float32)
        head = draw.normal(size=(_SMALL.vocabulary, 16)).astype(np.float32)
        beams = engine.step(
            beams,
            width,
            hidden=torch.from_numpy(hidden).to(device),
            head=torch.from_numpy(head).to(device),
        )
        expected = spec.step(trie, expected, width, spec.project(hidden, head), normalize)
        for name in ("tokens", "rows", "parents", "count"):
            if not np.array_equal(_host(getattr(beams, name)), getattr(expected, name)):
                raise GateError(f"{name} of step {beams.step} differ from the specification's.")
        if not np.allclose(_host(beams.scores), expected.scores, _TOLERANCE, _TOLERANCE):
            raise GateError(f"Scores of step {beams.step} differ from the specification's.")
    return f"{len(_WIDTHS)} steps over {len(sids)} semantic IDs equal"


def agrees_with_baseline(
    config: str, index: bs.Index, inputs: Inputs, baseline: ScoreFirstTrie
) -> str:
    """Score first on the measured catalog, and compare the semantic IDs with the baseline's.

    All places of a request get the hidden state of its first: rounding may turn two near-equal
    beams round, and then nothing after them must change. The sets of semantic IDs are compared, but
    for those within rounding of the last place. The baseline gets the same values in float32: in
    half precision its own products would be rounded, further than a mistake might reach.

    Raises:
        GateError: more than rounding is between them.
    """
    engine = bs.Engine(index, backend=config, normalize="all")
    hidden = [states[:, :1].expand_as(states).contiguous() for states in inputs.hidden]
    beams = engine.search(
        lambda step, beams: (hidden[step - 1], inputs.heads[step - 1]),
        inputs.widths,
        batch=len(hidden[0]),
    )
    expected = baseline.decode(
        [states.float() for states in hidden],
        [head.float() for head in inputs.heads],
        inputs.widths,
    )
    slack = 1e-4
    ours, theirs = _host(beams.scores), expected.scores.float().cpu().numpy()
    if not np.allclose(ours, theirs, rtol=0, atol=slack):
        raise GateError("Scores differ from the baseline's on the measured catalog.")
    shared = 0
    for mine, yours, scores in zip(
        _host(beams.tokens).tolist(), expected.tokens.tolist(), ours, strict=True
    ):
        sure = scores > scores[-1] + slack
        found, wanted = ({tuple(sid) for sid in sids} for sids in (mine, yours))
        if not {tuple(sid) for sid, keep in zip(mine, sure, strict=True) if keep} <= wanted:
            raise GateError("Semantic IDs differ from the baseline's on the measured catalog.")
        shared += len(found & wanted)
    return f"{shared} of {ours.size} semantic IDs equal, the rest within rounding of the last place"


def _host(array: Any) -> np.ndarray[Any, Any]:
    if hasattr(array, "cpu"):
        array = array.cpu()
    elif hasattr(array, "get"):
        array = array.get()
    return np.asarray(array)
