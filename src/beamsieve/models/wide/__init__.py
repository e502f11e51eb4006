"""An encoder-decoder whose decoder is made for wide beams and short semantic IDs.

After GRACE (sections 2.3, 2.4 and 4). ``Wide`` is the model as it is trained, ``WideDecoder`` the
same on an engine; ``laws`` says in plain PyTorch what each kernel computes.
"""

from beamsieve.models.wide.config import WideConfig
from beamsieve.models.wide.decoder import WideDecoder
from beamsieve.models.wide.encoder import Encoder, HistoryEncoder, register_encoder
from beamsieve.models.wide.model import Wide, WideReading
from beamsieve.models.wide.scorer import WideScorer
from beamsieve.models.wide.weights import WideWeights, weights_of

__all__ = [
    "Encoder",
    "HistoryEncoder",
    "Wide",
    "WideConfig",
    "WideDecoder",
    "WideReading",
    "WideScorer",
    "WideWeights",
    "register_encoder",
    "weights_of",
]
