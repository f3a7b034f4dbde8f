"""One stage of the pipe: some contiguous layers and what they remember."""

from __future__ import annotations

from torch import Tensor

from .layers import Decoder, Features
from .state import StageState


class Stage:
    """The layers ``layers`` of a model and their memory. A stage without layers passes tokens through."""

    def __init__(self, decoder: Decoder, layers: range) -> None:
        self.decoder = decoder
        self.layers = layers
        self.state = StageState({layer: decoder.window(layer) for layer in layers})

    def step(self, hidden: Tensor, features: Features | None = None) -> Tensor:
        """Runs the stage over the next q tokens: [1, q, hidden_size] → [1, q, hidden_size].

        ``features`` is filled in at the anchors among the stage's layers.
        """
        hidden = self.decoder.run_layers(self.layers, hidden, self.state, features)
        self.state.advance(hidden.shape[1])
        return hidden
