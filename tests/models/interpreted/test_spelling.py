"""The spelling kernel in Triton's interpreter says what the plain layers say."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from beamsieve.errors import InputError
from beamsieve.models import BeamScorer, ModelConfig, make_model


@dataclass
class GivenBeams:
    tokens: Tensor
    parents: Tensor


def a_model(**sizes):
    torch.manual_seed(0)
    known = {"width": 32, "heads": 2, "decoder_width": 16, "decoder_layers": 2, "longest": 6}
    model = make_model(ModelConfig(**{**known, **sizes}), (5, 7, 9, 4)).eval()
    return model.requires_grad_(False)


@pytest.mark.parametrize(("heads", "concepts"), [(2, 2), (1, 1), (2, 5)])
def test_it_says_what_the_plain_layers_say(heads, concepts):
    model = a_model(heads=heads, concepts=concepts)
    histories = torch.stack([torch.randint(0, size, (3, 4)) for size in (5, 7, 9, 4)], -1)
    reading = model.read(histories, torch.tensor([4, 0, 2]))
    ways = [BeamScorer(model, reading, kernel) for kernel in (True, False)]
    beams = GivenBeams(torch.empty((3, 1, 0), dtype=torch.int32), torch.full((3, 1), -1))
    for step, width in enumerate((4, 7, 3, 2), 1):
        by_kernel, plain = (way(step, beams)[0] for way in ways)
        torch.testing.assert_close(by_kernel, plain, atol=1e-5, rtol=1e-5)
        places = beams.tokens.shape[1]
        parents = torch.randint(0, places, (3, width), dtype=torch.int32)
        before = beams.tokens.gather(1, parents[..., None].long().expand(-1, -1, step - 1))
        tokens = torch.randint(0, model.codebooks[step - 1], (3, width, 1), dtype=torch.int32)
        beams = GivenBeams(torch.cat([before, tokens], -1), parents)


def test_it_catches_up_with_a_given_prefix():
    model = a_model()
    reading = model.read(torch.zeros((2, 2, 4), dtype=torch.int64), torch.tensor([2, 1]))
    tokens = torch.tensor([[[1, 2, 3], [4, 5, 6]], [[0, 1, 2], [3, 3, 3]]], dtype=torch.int32)
    beams = GivenBeams(tokens, torch.full((2, 2), -1))
    by_kernel, plain = (BeamScorer(model, reading, kernel)(4, beams)[0] for kernel in (True, False))
    torch.testing.assert_close(by_kernel, plain, atol=1e-5, rtol=1e-5)


def test_it_is_refused_where_it_cannot_serve():
    model = a_model(architecture="fused-gr")
    reading = model.read(torch.zeros((1, 2, 4), dtype=torch.int64), torch.tensor([2]))
    nothing = GivenBeams(torch.empty((1, 1, 0), dtype=torch.int32), torch.full((1, 1), -1))
    with pytest.raises(InputError, match="they are for a Deco"):
        BeamScorer(model, reading, kernel=True)(1, nothing)
