"""The texts that the target writes by itself: every exact decoder writes them too, so they are written only once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import torch
from tqdm.auto import tqdm

from ..baselines import autoregressive
from ..decode.generate import as_ids
from ..decode.sampling import GREEDY_BELOW, Sampler, check_seed, make_rule, warpers
from ..decode.stopping import StopRule
from ..files import whole_file
from ..target.fingerprint import fingerprint
from ..target.load import Message, Target, cache_folder, encode_chat
from ..target.pipeline import Pipeline
from .questions import Question

REPEAT_TOKENS = 12


@dataclass(frozen=True)
class Sampling:
    """How texts are sampled. ``temperature`` 0 is greedy; else plain sampling with position-keyed noise.

    Raises ``ValueError`` for what no sampling chain can be made of.
    """

    temperature: float = 0.0
    seed: int = 0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        warpers(self.temperature, self.top_k, self.top_p)
        check_seed(self.seed)

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
    """An answer. ``row``: which random numbers it was sampled with. ``budget``: the ``max_new_tokens`` it was given.

    ``stop_reason``: "eos" or "budget".
    """

    question_id: str
    category: str
    row: int
    prompt_ids: tuple[int, ...]
    new_ids: tuple[int, ...]
    budget: int
    stop_reason: str

    @cached_property
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
    target: Target,
    questions: Sequence[Question],
    sampling: Sampling,
    max_new_tokens: int = 128,
    earlier: Sequence[Sequence[Message]] | None = None,
) -> list[Text]:
    """The target's answers to the first turns, in its chat template, up to its end-of-sequence token.

    ``earlier``: for each question the turns of the chat before it.
    Kept in the cache folder, one file an answer: a killed run loses at most one. Raises ``ValueError`` before the
    first answer for an impossible seed or budget and for a question that leaves no room for ``max_new_tokens``.
    """
    writer = _Writer(target, sampling, max_new_tokens)
    chats = earlier or [()] * len(questions)
    prompts = [writer.prompt(question, turns) for question, turns in zip(questions, chats, strict=True)]
    with tqdm(zip(questions, prompts, strict=True), total=len(prompts), desc="answering", unit="question") as bar:
        return [writer.text(question, row, prompt) for row, (question, prompt) in enumerate(bar)]


class _Writer:
    """Finds answers in the cache folder and writes those that are not there."""

    def __init__(self, target: Target, sampling: Sampling, budget: int) -> None:
        self.target, self.sampling, self.budget = target, sampling, budget
        self.pipeline = Pipeline(target.model, 1)
        self.eos = as_ids(getattr(target.model.generation_config, "eos_token_id", None))
        # What neither of the two accepts is said now and not in the middle of a progress bar.
        StopRule(0, budget)
        sampling.sampler(0, self.pipeline.decoder.vocab_size, target.device)
        self.folder = cache_folder() / "texts" / self._name()
        self.folder.mkdir(parents=True, exist_ok=True)

    def _name(self) -> str:
        """A folder name for all that decides the texts, whatever they answer."""
        settings = {"temperature": 0} if self.sampling.greedy else asdict(self.sampling)
        place = [str(self.target.dtype), self.target.device.type]
        parts = [self.target.name, fingerprint(self.target.model), *place, settings, self.budget, sorted(self.eos)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]

    def prompt(self, question: Question, earlier: Sequence[Message] = ()) -> list[int]:
        """The ids of the chat up to the answer."""
        ids = encode_chat(self.target, question.turns[0], earlier)[0].tolist()
        longest = self.pipeline.decoder.max_positions
        if longest is not None and len(ids) + self.budget > longest:
            raise ValueError(
                f"question {question.question_id!r}: {len(ids)} prompt tokens and max_new_tokens={self.budget} exceed "
                f"the model's {longest} positions"
            )
        return ids

    def text(self, question: Question, row: int, prompt: list[int]) -> Text:
        """The answer, sampled with the random numbers of ``row``."""
        key = json.dumps([prompt, 0 if self.sampling.greedy else row])
        path = self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
        kept = self._kept(path)
        if kept is None:
            self._write(path, row, prompt)
            kept = self._kept(path)
        assert kept is not None
        return Text(question.question_id, question.category, row, tuple(prompt), *kept)

    def _kept(self, path: Path) -> tuple[tuple[int, ...], int, str] | None:
        """Ids, budget and stop reason of an answer in the cache; ``None`` if there is none, or a damaged one."""
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            new_ids, reason = tuple(kept["new_ids"]), str(kept["stop_reason"])
            known = all(0 <= token_id < self.pipeline.decoder.vocab_size for token_id in new_ids)
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return (new_ids, self.budget, reason) if new_ids and known else None

    def _write(self, path: Path, row: int, prompt: list[int]) -> None:
        decoder = self.pipeline.decoder
        sampler = self.sampling.sampler(row, decoder.vocab_size, decoder.device)
        trace = autoregressive(self.pipeline, sampler, prompt, self.budget, self.eos)
        kept = {"new_ids": trace.token_ids, "stop_reason": trace.stop_reason}
        with whole_file(path) as place:
            place.write_text(json.dumps(kept), encoding="utf-8")
