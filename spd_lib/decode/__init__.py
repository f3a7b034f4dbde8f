"""The engine: the cycle, exact verification, stopping, and the two doors for users."""

from .custom import decoder
from .engine import decode
from .generate import GenerateOutput, generate
from .sampling import Sampler
from .stopping import StopRule

__all__ = ["GenerateOutput", "Sampler", "StopRule", "decode", "decoder", "generate"]
