"""A request's result depends on nothing else in the batch, bit for bit, and never varies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from beamsieve.interface import Normalize
from beamsieve_conformance import compare
from beamsieve_conformance.compare import HostBeams
from beamsieve_conformance.oracle import Inputs
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Trial, World

NORMALIZERS = ("all", "catalog", "eligible")
WIDTHS = (6, 11, 4)
HIDDEN = 24


def mixed_catalog(variable_length: bool) -> World:
    """Hubs, chains and, where they may be, semantic IDs of several lengths."""
    rng = np.random.default_rng(0)
    sids: set[tuple[int, ...]] = {
        (a, int(b), int(b) % 5) for a in range(12) for b in rng.choice(70, 1 + 6 * (a % 5))
    }
    if variable_length:
        sids |= {(12,), (13, 1), (13, 69)}
    return World.of(sorted(sids), [14, 70, 5])


@dataclass(frozen=True)
class Asks:
    """What one request's model says at each step, and where the request begins."""

    logits: list[NDArray[np.float32]]
    hidden: list[NDArray[np.float32]]
    prefix: tuple[int, ...]


def asks(seed: int, world: World, prefix: tuple[int, ...], manner: str = "plain") -> Asks:
    """A request's own numbers, the same wherever it stands: "plain", "spiked" or "loud"."""
    rng = np.random.default_rng(seed)
    places, logits, hidden = 1, [], []
    for width, size in zip(WIDTHS[1:], world.trie.codebooks[1:], strict=True):
        values = rng.standard_normal((places, size)).astype(np.float32) * 3
        if manner == "spiked":
            values[rng.random(values.shape) < 0.3] = np.nan
        logits.append(values + np.float32(1e4) if manner == "loud" else values)
        states = rng.standard_normal((places, HIDDEN)).astype(np.float32)
        hidden.append(states * np.float32(100) if manner == "loud" else states)
        places = width
    return Asks(logits, hidden, prefix)


def search(
    subject: Subject,
    world: World,
    requests: list[Asks],
    normalize: Normalize = "catalog",
    hidden: bool = False,
) -> list[HostBeams]:
    """The second and third level of these requests in one batch."""
    trial = Trial(subject, world, normalize)
    rng = np.random.default_rng(99)
    beams = trial.begin(len(requests), prefix=[request.prefix for request in requests])
    steps = []
    for level, width in enumerate(WIDTHS[1:]):
        if hidden:
            size = world.trie.codebooks[level + 1]
            head = (rng.standard_normal((size, HIDDEN)) / 4).astype(np.float32)
            said = np.stack([request.hidden[level] for request in requests])
            inputs = Inputs(hidden=said, head=head)
        else:
            inputs = Inputs(logits=np.stack([request.logits[level] for request in requests]))
        beams = trial.take(beams, width, inputs)
        steps.append(trial.host(beams))
    return steps


def others(world: World, number: int, variable_length: bool) -> list[Asks]:
    """Neighbours of every kind: wide and narrow, dying, unknown, finished."""
    prefixes = [(a,) for a in range(12)] + ([(12,), (13,)] if variable_length else [])
    return [
        asks(
            1000 + n,
            world,
            prefixes[(5 * n + 4) % len(prefixes)],
            ("loud", "spiked", "plain")[n % 3],
        )
        for n in range(number)
    ]


def check_independent(
    subject: Subject, normalize: Normalize, hidden: bool, neighbours: int
) -> None:
    """One request alone, first, in the middle and last among its neighbours."""
    variable_length = subject.capabilities.variable_length
    world = mixed_catalog(variable_length)
    for prefix in ((4,), (2,), (0,)):  # a hub row, one between, and a row with one child
        mine = asks(7, world, prefix)
        alone = search(subject, world, [mine], normalize, hidden)
        crowd = others(world, neighbours, variable_length)
        for place in sorted({0, neighbours // 2, neighbours}):
            batch = [*crowd[:place], mine, *crowd[place:]]
            found = search(subject, world, batch, normalize, hidden)
            for step, single in zip(found, alone, strict=True):
                compare.check_same_bits(
                    pick(step, place),
                    single,
                    f"step {step.step}, request {place} of {len(batch)} against alone",
                )


def pick(beams: HostBeams, request: int) -> HostBeams:
    """One request of a batch, as a batch of one."""
    part: dict[str, Any] = {
        name: getattr(beams, name)[request : request + 1] for name in compare.DTYPES
    }
    return HostBeams(step=beams.step, **part)


@pytest.mark.parametrize("neighbours", [1, 7, 64])
@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_given_logits_decide_alone(subject: Subject, normalize: Normalize, neighbours: int) -> None:
    check_independent(subject, normalize, hidden=False, neighbours=neighbours)


@pytest.mark.parametrize("neighbours", [1, 7, 64])
@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_hidden_states_decide_alone(
    subject: Subject, normalize: Normalize, neighbours: int
) -> None:
    check_independent(subject, normalize, hidden=True, neighbours=neighbours)


@pytest.mark.needs("deterministic")
@pytest.mark.parametrize("hidden", [False, True])
def test_twenty_runs_give_the_same_bits(subject: Subject, hidden: bool) -> None:
    world = mixed_catalog(subject.capabilities.variable_length)
    batch = others(world, 9, subject.capabilities.variable_length)
    first = search(subject, world, batch, hidden=hidden)
    for turn in range(2, 21):
        again = search(subject, world, batch, hidden=hidden)
        for found, expected in zip(again, first, strict=True):
            compare.check_same_bits(found, expected, f"step {found.step} of run {turn}")


@pytest.mark.parametrize("hidden", [False, True])
def test_eight_threads_may_share_an_engine(subject: Subject, hidden: bool) -> None:
    world = mixed_catalog(subject.capabilities.variable_length)
    trial = Trial(subject, world)
    rng = np.random.default_rng(5)
    heads = [rng.standard_normal((size, 8)).astype(np.float32) for size in world.trie.codebooks]

    def decode(seed: int) -> list[HostBeams]:
        said = np.random.default_rng(seed)
        beams, steps = trial.begin(1 + seed % 4), []
        for level, width in enumerate(WIDTHS):
            batch, places, size = trial.shape(beams)
            if hidden:
                states = said.standard_normal((batch, places, 8)).astype(np.float32)
                inputs = Inputs(hidden=states, head=heads[level])
            else:
                values = said.standard_normal((batch, places, size)).astype(np.float32)
                inputs = Inputs(logits=values)
            beams = trial.take(beams, width, inputs)
            steps.append(trial.host(beams))
        return steps

    seeds = [*range(16)] * 2
    expected = {seed: decode(seed) for seed in set(seeds)}
    with ThreadPoolExecutor(8) as pool:
        for seed, steps in zip(seeds, pool.map(decode, seeds), strict=True):
            for found, single in zip(steps, expected[seed], strict=True):
                compare.check_same_bits(found, single, f"step {found.step} of thread {seed}")
