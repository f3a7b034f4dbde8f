"""When a text ends: decided here alone, on committed tokens alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from transformers import StoppingCriteria, StopStringCriteria


class StopRule:
    """End-of-sequence ids, transformers' stopping criteria (stop strings among them), and the budget.

    ``prompt_length`` in tokens; ``max_new_tokens`` ≥ 1 is exact; ``device``: where the criteria get their ids. A draft
    never stops anything.
    """

    def __init__(
        self,
        prompt_length: int,
        max_new_tokens: int,
        eos_token_ids: Collection[int] = (),
        criteria: Sequence[StoppingCriteria] = (),
        device: torch.device | str = "cpu",
    ) -> None:
        if max_new_tokens < 1 or max_new_tokens % 1:
            raise ValueError(f"max_new_tokens must be a whole number, at least 1, got {max_new_tokens}")
        self.last_position = prompt_length + max_new_tokens - 1
        self.eos_token_ids = frozenset(eos_token_ids)
        self.criteria = list(criteria)
        self.device = device

    def reason(self, committed: list[int]) -> str | None:
        """Why the text ends with the last of the ``committed`` ids (prompt included), or ``None`` if it goes on."""
        if committed[-1] in self.eos_token_ids:
            return "eos"
        ids = torch.tensor([committed], device=self.device) if self.criteria else None
        for criterion in self.criteria:
            if bool(torch.as_tensor(criterion(ids, None)).any()):
                return "stop string" if isinstance(criterion, StopStringCriteria) else "criterion"
        return "budget" if len(committed) > self.last_position else None
