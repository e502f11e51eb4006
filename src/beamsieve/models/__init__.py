"""A family of small generators that drive the engine: train it, recommend with it, measure it.

Needs torch: ``pip install 'beamsieve[torch]'``.
"""

from beamsieve.models.ahead import think_ahead
from beamsieve.models.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from beamsieve.models.concepts import Concepts, load_concepts, save_concepts
from beamsieve.models.config import ModelConfig
from beamsieve.models.data import Histories, HistoryColumns, read_histories
from beamsieve.models.deco import Deco
from beamsieve.models.family import make_model
from beamsieve.models.flat import FlatGR
from beamsieve.models.fused import FusedGR
from beamsieve.models.generator import Generator, Reading
from beamsieve.models.metrics import Metrics
from beamsieve.models.model import Model
from beamsieve.models.recommendation import Recommendation, RecommendedItem
from beamsieve.models.scorer import BeamScorer
from beamsieve.models.serving import Recommender, recommend
from beamsieve.models.training import TrainingReport, TrainingSettings, train
from beamsieve.models.wide import Wide, WideConfig, WideDecoder

__all__ = [
    "BeamScorer",
    "Checkpoint",
    "Concepts",
    "Deco",
    "FlatGR",
    "FusedGR",
    "Generator",
    "Histories",
    "HistoryColumns",
    "Metrics",
    "Model",
    "ModelConfig",
    "Reading",
    "Recommendation",
    "RecommendedItem",
    "Recommender",
    "TrainingReport",
    "TrainingSettings",
    "Wide",
    "WideConfig",
    "WideDecoder",
    "load_checkpoint",
    "load_concepts",
    "make_model",
    "read_histories",
    "recommend",
    "save_checkpoint",
    "save_concepts",
    "think_ahead",
    "train",
]
