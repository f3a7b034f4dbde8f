"""Speculative Pipeline Decoding (arXiv 2605.30852): run it, measure it, look inside it."""
