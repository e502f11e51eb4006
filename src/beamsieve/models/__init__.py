"""A small generator that drives the engine: train it, recommend with it, measure it.

Needs torch: ``pip install 'beamsieve[torch]'``.
"""

from beamsieve.models.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from beamsieve.models.data import Histories, HistoryColumns, read_histories
from beamsieve.models.deco import Deco, DecoConfig
from beamsieve.models.metrics import Metrics
from beamsieve.models.scorer import DecoScorer
from beamsieve.models.serving import Recommendation, RecommendedItem, Recommender, recommend
from beamsieve.models.training import TrainingReport, TrainingSettings, train

__all__ = [
    "Checkpoint",
    "Deco",
    "DecoConfig",
    "DecoScorer",
    "Histories",
    "HistoryColumns",
    "Metrics",
    "Recommendation",
    "RecommendedItem",
    "Recommender",
    "TrainingReport",
    "TrainingSettings",
    "load_checkpoint",
    "read_histories",
    "recommend",
    "save_checkpoint",
    "train",
]
