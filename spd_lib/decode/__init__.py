"""The engine: the cycle, exact verification, stopping, and the two doors for users."""

from .custom import decoder
from .engine import decode
from .generate import GenerateOutput, generate

__all__ = ["GenerateOutput", "decode", "decoder", "generate"]
