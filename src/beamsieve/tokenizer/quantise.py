"""Semantic IDs by residual k-means: each level clusters what the levels before left over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import InputError

Clustering = Literal["scikit-learn", "faiss"]
LARGEST = 1e15
"""Of a vector's values: the squares of larger ones, added up, leave float32."""


@dataclass(frozen=True)
class Tokens:
    """Semantic IDs of items.

    Attributes:
        sids: int64 [rows, L]; one row per path, a collision level included where there is one.
        items: int64 [rows]; whose path it is. Without multi-path, row n is item n's.
        codebooks: V_l per level.
        errors: after each clustered level, the mean squared distance left over of the first paths,
            as a share of the vectors' variance.
        collisions: items that shared a semantic ID before any collision level parted them.
    """

    sids: NDArray[np.int64]
    items: NDArray[np.int64]
    codebooks: tuple[int, ...]
    errors: tuple[float, ...]
    collisions: int


def residual_kmeans(
    vectors: NDArray[np.floating[Any]],
    codebooks: Sequence[int],
    seed: int = 0,
    *,
    clustering: Clustering = "scikit-learn",
    paths: int = 1,
    collision_level: bool = False,
    iterations: int = 15,
) -> Tokens:
    """Spell every vector by the nearest cluster of its residual, level by level.

    Residual quantisation, the usual way to semantic IDs (Rajput et al. 2023, "Recommender Systems
    with Generative Retrieval"), here with k-means at every level in place of a trained encoder.

    Args:
        vectors: float [items, dimensions].
        codebooks: the number of clusters per level; a level of fewer distinct residuals uses fewer.
        seed: of k-means.
        clustering: who does it; faiss only where it is installed.
        paths: m; an item gets a semantic ID under each of its m nearest clusters of level 1, the
            nearest first (multi-path).
        collision_level: append a level that numbers the items of one semantic ID, 0 for the first.
        iterations: of k-means at most.

    Raises:
        InputError: no vectors, a value that is no number, or an impossible size.
    """
    if vectors.ndim != 2 or not vectors.size:
        raise InputError(f"vectors has the shape {vectors.shape}; give [items, dimensions].")
    if not np.isfinite(vectors).all():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(1))[0])
        raise InputError(f"The vector of row {row} holds a value that is no finite number.")
    sizes = [int(size) for size in codebooks]
    if not sizes or min(sizes) < 1:
        raise InputError(f"codebooks is {list(codebooks)}; give at least one level, from 1 code.")
    if not 1 <= paths <= sizes[0]:
        raise InputError(f"paths is {paths}; give 1 up to the first level's {sizes[0]} codes.")
    left = vectors.astype(np.float32)
    if not (np.abs(left).max() < LARGEST):
        raise InputError(
            f"vectors has values of {LARGEST:g} and more, whose squared distances float32 cannot "
            "hold; scale the vectors down."
        )
    spread = float(((left - left.mean(0)) ** 2).sum(1).mean()) or 1.0
    items = np.arange(len(left))
    sids, errors = np.empty((len(left), 0), np.int64), []
    for level, clusters in enumerate(sizes):
        firsts = np.unique(items, return_index=True)[1]
        # The first paths alone place the centres: an item must not count m times.
        centres = _centres(left[firsts], clusters, seed + level, clustering, iterations)
        if level == 0 and paths > 1:
            nearest = _nearest(left, centres, paths)
            items = np.repeat(items, nearest.shape[1])
            sids, code = sids[items], nearest.ravel()
            left = left[items]
        else:
            code = _nearest(left, centres, 1)[:, 0]
        left = left - centres[code]
        sids = np.column_stack([sids, code])
        firsts = np.unique(items, return_index=True)[1]
        errors.append(float((left[firsts] ** 2).sum(1).mean()) / spread)
    rank, collisions = _ranks(sids)
    if collision_level:
        sids = np.column_stack([sids, rank])
        sizes.append(int(rank.max()) + 1)
    return Tokens(sids, items, tuple(sizes), tuple(errors), collisions)


def _centres(
    vectors: NDArray[np.float32], clusters: int, seed: int, clustering: Clustering, iterations: int
) -> NDArray[np.float32]:
    clusters = min(clusters, len(np.unique(vectors, axis=0)))
    if clustering == "faiss":
        try:
            import faiss
        except ImportError as error:
            raise InputError(
                "clustering is faiss, which is not installed; pip install faiss-cpu, or take "
                "scikit-learn."
            ) from error
        kmeans = faiss.Kmeans(vectors.shape[1], clusters, niter=iterations, seed=seed)
        kmeans.train(vectors)
        found: NDArray[np.float32] = np.asarray(kmeans.centroids, np.float32)
        return found
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    # Threads add up in whatever order they end, and a seed would not give one answer.
    with threadpool_limits(1):
        fitted = KMeans(clusters, max_iter=iterations, random_state=seed).fit(vectors)
    centres: NDArray[np.float32] = fitted.cluster_centers_.astype(np.float32)
    return centres


def _nearest(
    vectors: NDArray[np.float32], centres: NDArray[np.float32], count: int
) -> NDArray[np.int64]:
    """int64 [n, count]: the nearest centres, the nearest first."""
    found = np.empty((len(vectors), min(count, len(centres))), np.int64)
    half = (centres**2).sum(1) / 2
    for start in range(0, len(vectors), 4096):
        piece = slice(start, start + 4096)
        far = half - vectors[piece] @ centres.T
        found[piece] = np.argsort(far, axis=1, kind="stable")[:, : found.shape[1]]
    return found


def _ranks(sids: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """The place of each row among those of its semantic ID, and how many rows share one."""
    _, groups, counts = np.unique(sids, axis=0, return_inverse=True, return_counts=True)
    groups = groups.ravel()
    order = np.argsort(groups, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    ranks = np.empty(len(sids), np.int64)
    ranks[order] = np.arange(len(sids)) - np.repeat(starts, counts)
    return ranks, int(counts[counts > 1].sum())
