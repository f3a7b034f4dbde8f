"""The target model: loaded, opened up, cut into stages, moved."""

from .flight import Flight, InFlight
from .layers import Decoder, UnsupportedModelError
from .load import Target, load
from .pipeline import Finished, Pipeline

__all__ = ["Decoder", "Finished", "Flight", "InFlight", "Pipeline", "Target", "UnsupportedModelError", "load"]
