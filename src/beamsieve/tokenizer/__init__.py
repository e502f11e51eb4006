"""From items to semantic IDs: vectors, residual k-means, and a report of what came out.

Needs scikit-learn: ``pip install 'beamsieve[torch]'``.
"""

from beamsieve.tokenizer.quantise import Tokens, residual_kmeans
from beamsieve.tokenizer.report import report_of
from beamsieve.tokenizer.vectors import interaction_vectors

__all__ = ["Tokens", "interaction_vectors", "report_of", "residual_kmeans"]
