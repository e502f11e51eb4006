"""Item vectors from interactions alone: items that come near each other lie near each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import InputError
from beamsieve.models.sequences import Sequences


def interaction_vectors(
    sequences: Sequences,
    items: int,
    *,
    dimensions: int = 64,
    window: int = 5,
    smoothing: float = 0.75,
    seed: int = 0,
) -> NDArray[np.float32]:
    """PPMI of items that come near each other, factored by a truncated SVD.

    Two items count as a pair as often as they stand at most ``window`` apart in a sequence, the
    nearer the more (1 / distance). Positive pointwise mutual information with the context's
    frequencies to the power of ``smoothing`` (Levy, Goldberg and Dagan 2015, "Improving
    Distributional Similarity with Lessons Learned from Word Embeddings", sections 2.1 and 3.2);
    the vectors are U · S^0.5, scaled to length 1 (section 3.3).

    Args:
        sequences: item numbers, in time order.
        items: how many items there are; one that never occurs gets the zero vector.
        dimensions: of the vectors; fewer where there are fewer items.
        window: how far apart a pair may stand.
        smoothing: of the context's frequencies.
        seed: of the SVD.

    Returns:
        float32 [items, dimensions].

    Raises:
        InputError: no two items ever come near each other, or a size is below 1.
    """
    from scipy.sparse import coo_matrix
    from sklearn.decomposition import TruncatedSVD

    if dimensions < 1 or window < 1:
        raise InputError(f"dimensions is {dimensions}, window {window}; give at least 1 of each.")
    owner = np.repeat(np.arange(len(sequences)), np.diff(sequences.starts))
    firsts, seconds, weights = [], [], []
    longest = int(np.diff(sequences.starts).max(initial=0))
    for apart in range(1, min(window, longest - 1) + 1):
        together = owner[apart:] == owner[:-apart]
        first, second = sequences.items[:-apart][together], sequences.items[apart:][together]
        other = first != second
        firsts += [first[other], second[other]]
        seconds += [second[other], first[other]]
        weights += [np.full(2 * int(other.sum()), 1 / apart)]
    if not sum(map(len, firsts)):
        raise InputError("No two items ever come near each other; vectors cannot be learnt.")
    where = (np.concatenate(firsts), np.concatenate(seconds))
    counts = coo_matrix((np.concatenate(weights), where), (items, items)).tocsr()
    total = counts.sum()
    own = np.asarray(counts.sum(1)).ravel() / total
    context = np.asarray(counts.sum(0)).ravel() ** smoothing
    context /= context.sum()
    pairs = counts.tocoo()
    information = np.log(pairs.data / total / (own[pairs.row] * context[pairs.col]))
    kept = information > 0
    ppmi = coo_matrix(
        (information[kept], (pairs.row[kept], pairs.col[kept])), (items, items)
    ).tocsr()
    size = min(dimensions, items - 1)
    svd = TruncatedSVD(size, random_state=seed)
    factors = svd.fit_transform(ppmi)  # U · S
    vectors = factors / np.maximum(svd.singular_values_, 1e-12) ** 0.5
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return scaled
