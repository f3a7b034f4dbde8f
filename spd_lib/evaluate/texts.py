"""The texts that the target writes by itself: every exact decoder writes them too, so they are written only once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tqdm.auto import tqdm

from ..baselines import autoregressive
from ..decode.sampling import GREEDY_BELOW, Sampler, make_rule, warpers
from ..target.load import Target, cache_folder, encode_chat
from ..target.pipeline import Pipeline
from .questions import Question

REPEAT_TOKENS = 12


@dataclass(frozen=True)
class Sampling:
    """How texts are sampled. ``temperature`` 0 is greedy; else plain sampling with position-keyed noise."""

    temperature: float = 0.0
    seed: int = 0
    top_k: int | None = None
    top_p: float | None = None

    @property
    def greedy(self) -> bool:
        """Whether the text is the target's argmax."""
        return self.temperature < GREEDY_BELOW

    def sampler(self, row: int, vocab_size: int, device: torch.device) -> Sampler:
        """The sampler of row ``row`` under the Gumbel coupling: it writes what plain sampling writes."""
        if self.greedy:
            return Sampler.greedy(vocab_size, device)
        rule = make_rule("gumbel", seed=self.seed, row=row, vocab_size=vocab_size, device=device)
        chain = warpers(self.temperature, self.top_k, self.top_p)
        return Sampler(rule, chain, vocab_size=vocab_size, device=device)


@dataclass(frozen=True)
class Text:
    """An answer. ``row``: which random numbers it was sampled with. ``budget``: the ``max_new_tokens`` it was given."""

    question_id: str
    category: str
    row: int
    prompt_ids: tuple[int, ...]
    new_ids: tuple[int, ...]
    budget: int

    @property
    def counted(self) -> int:
        """New tokens before the answer's first repeated 12-gram, cut where the second occurrence starts."""
        seen: set[tuple[int, ...]] = set()
        for start in range(len(self.new_ids) - REPEAT_TOKENS + 1):
            gram = self.new_ids[start : start + REPEAT_TOKENS]
            if gram in seen:
                return start
            seen.add(gram)
        return len(self.new_ids)


def write_texts(
    target: Target, questions: Sequence[Question], sampling: Sampling, max_new_tokens: int = 128
) -> list[Text]:
    """The target's answers to the first turns, in its chat template, up to its end-of-sequence token.

    Kept in the cache folder, one file a question: a killed run loses at most one answer.
    """
    pipeline = Pipeline(target.model, 1)
    folder = cache_folder() / "texts" / _name(target, sampling, max_new_tokens)
    folder.mkdir(parents=True, exist_ok=True)
    texts = []
    for row, question in enumerate(tqdm(questions, desc="answering", unit="question")):
        prompt = encode_chat(target, question.turns[0])[0].tolist()
        texts.append(_kept(folder, pipeline, target, question, row, prompt, sampling, max_new_tokens))
    return texts


def _kept(
    folder: Path,
    pipeline: Pipeline,
    target: Target,
    question: Question,
    row: int,
    prompt: list[int],
    sampling: Sampling,
    budget: int,
) -> Text:
    key = hashlib.sha256(json.dumps([prompt, 0 if sampling.greedy else row]).encode()).hexdigest()[:24]
    path = folder / f"{key}.json"
    if path.exists():
        new_ids = json.loads(path.read_text(encoding="utf-8"))
    else:
        ends = target.model.generation_config.eos_token_id
        eos = [ends] if isinstance(ends, int) else list(ends or [])
        sampler = sampling.sampler(row, pipeline.decoder.vocab_size, pipeline.decoder.device)
        new_ids = autoregressive(pipeline, sampler, prompt, budget, eos).token_ids
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(new_ids), encoding="utf-8")
        temporary.replace(path)
    return Text(question.question_id, question.category, row, tuple(prompt), tuple(new_ids), budget)


def _name(target: Target, sampling: Sampling, budget: int) -> str:
    """A folder name for all that decides the texts: the target's weights, their type, the sampling, the budget."""
    weights = hashlib.sha256()
    for parameter in list(target.model.parameters())[::16]:
        weights.update(parameter.detach().flatten()[:4096].float().cpu().numpy().tobytes())
    settings = asdict(sampling) if not sampling.greedy else {"temperature": 0}
    parts = [weights.hexdigest(), str(target.dtype), target.device.type, settings, budget]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]
