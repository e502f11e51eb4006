"""A made-up world: items in clusters, semantic IDs from their vectors, users who wander.

Nothing in it is downloaded, and everything follows from a seed. Items are things such as "amber
wicker teapot 7": kinds (teapot) hold styles (wicker), styles hold items. An item's vector lies
near its style's, and that near its kind's, so residual k-means finds the structure again and
spells it into semantic IDs. A user wanders from style to style, mostly staying or taking one of a
few usual ways, and picks items there by their popularity: what comes next can be learnt, but
never be known for sure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beamsieve.models.data import Histories
from beamsieve.tokenizer import residual_kmeans

COLOURS = (
    "amber", "ash", "bronze", "charcoal", "cherry", "coral", "cream", "indigo", "ivory", "jade",
    "lilac", "moss", "navy", "ochre", "plum", "sand", "silver", "slate", "teal", "walnut",
)  # fmt: skip
STYLES = (
    "wicker", "enamel", "folding", "cordless", "travel", "garden", "antique", "quilted",
    "stackable", "woollen", "miniature", "painted", "silent", "padded", "marble", "classic",
)  # fmt: skip
KINDS = (
    "teapot", "lantern", "raincoat", "backpack", "kettle", "armchair", "notebook", "bicycle lamp",
    "hammock", "chess set", "scarf", "toolbox", "watering can", "headphones", "rug", "telescope",
    "skillet", "birdhouse", "sleeping bag", "desk lamp", "umbrella", "wall clock", "sandals",
    "camera strap", "picnic basket", "mixing bowl", "bookshelf", "keyboard", "mirror", "tent",
    "kite", "candle holder",
)  # fmt: skip

STAY, USUAL_WAY = 0.65, 0.3  # otherwise, anywhere in the world
WAYS = 2


@dataclass(frozen=True)
class Size:
    """How large a world is.

    Attributes:
        items: in all.
        users: whose histories are trained on.
        held_out: further users, who are only decoded.
        events: items of each user's history.
        dimensions: of the items' vectors.
        codebook: of every level of the semantic IDs.
        levels: of the semantic IDs.
    """

    items: int = 20_000
    users: int = 4_000
    held_out: int = 1_000
    events: int = 12
    dimensions: int = 16
    codebook: int = 256
    levels: int = 3


QUICK = Size(items=1_500, users=300, held_out=60, events=8, dimensions=8, codebook=32)


@dataclass(frozen=True)
class World:
    """Items, semantic IDs and histories.

    Attributes:
        names: of the items; an item's id is its place here.
        sids: int64 [items, levels].
        codebooks: of the semantic IDs.
        training: the training users' histories.
        held_out: the held-out users' histories without their last item, which is the target.
    """

    names: tuple[str, ...]
    sids: NDArray[np.int64]
    codebooks: tuple[int, ...]
    training: Histories
    held_out: Histories


def make_world(size: Size, seed: int, begin: Callable[[str], None] = lambda what: None) -> World:
    """Make a world; ``begin`` is told what is being made."""
    random = np.random.default_rng(seed)
    begin("items")
    styles = len(KINDS) * len(STYLES)
    style = random.integers(styles, size=size.items)
    names = _names(style, random)
    vectors = _vectors(style, size.dimensions, random)
    begin("semantic IDs")
    sids = residual_kmeans(vectors, [size.codebook] * size.levels, seed).sids
    begin("users")
    walks = _walks(style, size.users + size.held_out, size.events, random)
    held_out = walks[size.users :]
    return World(
        names,
        sids,
        (size.codebook,) * size.levels,
        Histories.from_lists(walks[: size.users].tolist(), source="training users"),
        Histories.from_lists(
            held_out[:, :-1].tolist(), held_out[:, -1].tolist(), source="held-out users"
        ),
    )


def _names(style: NDArray[np.int64], random: np.random.Generator) -> tuple[str, ...]:
    colour = random.integers(len(COLOURS), size=len(style))
    seen: dict[str, int] = {}
    names = []
    for kind_and_style, hue in zip(style.tolist(), colour.tolist(), strict=True):
        kind, manner = divmod(kind_and_style, len(STYLES))
        name = f"{COLOURS[hue]} {STYLES[manner]} {KINDS[kind]}"
        seen[name] = seen.get(name, 0) + 1
        names.append(f"{name} {seen[name]}" if seen[name] > 1 else name)
    return tuple(names)


def _vectors(
    style: NDArray[np.int64], dimensions: int, random: np.random.Generator
) -> NDArray[np.float32]:
    kinds = random.normal(size=(len(KINDS), dimensions))
    manners = 0.5 * random.normal(size=(len(KINDS) * len(STYLES), dimensions))
    centres = kinds.repeat(len(STYLES), 0) + manners
    spread = 0.3 * random.normal(size=(len(style), dimensions))
    return (centres[style] + spread).astype(np.float32)


def _walks(
    style: NDArray[np.int64], users: int, events: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Items int64 [users, events] that the users come to have, none of them twice in a row."""
    styles = len(KINDS) * len(STYLES)
    by_style = np.argsort(style, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(style, minlength=styles))])
    inhabited = np.flatnonzero(np.diff(starts))
    ways = random.choice(inhabited, size=(styles, WAYS))
    place = random.choice(inhabited, size=users)
    walks = np.empty((users, events), np.int64)
    for event in range(events):
        luck = random.random(users)
        usual = ways[place, random.integers(WAYS, size=users)]
        anywhere = random.choice(inhabited, size=users)
        place = np.where(luck < STAY, place, np.where(luck < STAY + USUAL_WAY, usual, anywhere))
        # Within a style the first items are the popular ones: rank = count * u ** 3.
        count = np.diff(starts)[place]
        rank = (count * random.random(users) ** 3).astype(np.int64)
        if event:
            again = by_style[starts[place] + rank] == walks[:, event - 1]
            rank = np.where(again, (rank + 1) % count, rank)
        walks[:, event] = by_style[starts[place] + rank]
    return walks
