"""Decoders to compare with; loops only."""

from .autoregressive import autoregressive

__all__ = ["autoregressive"]
