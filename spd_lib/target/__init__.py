"""The target model: loaded, opened up, cut into stages, moved."""

from .flight import Flight, InFlight
from .layers import Decoder, UnsupportedModelError
from .load import Target, banner, encode_chat, load
from .pipeline import Finished, Pipeline
from .stage import Stage
from .state import StageState

__all__ = [
    "Decoder",
    "Finished",
    "Flight",
    "InFlight",
    "Pipeline",
    "Stage",
    "StageState",
    "Target",
    "UnsupportedModelError",
    "banner",
    "encode_chat",
    "load",
]
