"""The training loop: KL divergence to the target on the draft vocabulary, one moment of the pipe a batch."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from tqdm.auto import tqdm

from ..core.metrics import acceptance_by_fill
from ..core.plan import even
from ..core.staircase import row_kinds
from ..draft.module import PipelineDraftModule
from ..target.layers import Decoder
from .draws import Moment, MomentLaw, batches, cut
from .loss import draft_loss
from .optimizer import make_optimizers, rate_at, set_rate
from .pause import wait_while_paused
from .teacher import Stored, Streamed, padded
from .tokens import Conversation, Corpus


class TrainingError(ValueError):
    """Training cannot go on; the last good checkpoint is kept, and the message is one line that says what to do."""


@dataclass(frozen=True)
class TrainConfig:
    """How a drafter is trained.

    ``batch_tokens``: tokens of one pass, padding included, of which ``accumulate`` make a step, each with a moment of
    its own. The learning rate rises for ``warmup_steps``, stays, and falls to zero over the last ``decay_share``.
    """

    epochs: float = 4.0
    max_steps: int | None = None
    batch_tokens: int = 2048
    accumulate: int = 1
    learning_rate: float = 6e-3
    head_learning_rate: float = 2e-3
    warmup_steps: int = 30
    decay_share: float = 0.3
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    min_stages: int = 2
    max_stages: int = 16
    expected_acceptance: float = 0.6
    seed: int = 0
    save_every_s: float = 300.0
    check_every_steps: int = 250
    mixed_precision: str = "bf16"

    def __post_init__(self) -> None:
        for name in ("epochs", "max_steps", "batch_tokens", "accumulate", "learning_rate", "check_every_steps"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, got {value}")


class _Reader(nn.Module):
    """The part of the module below its head, as the forward that Accelerate wraps: the loss does the head itself."""

    def __init__(self, module: PipelineDraftModule) -> None:
        super().__init__()
        self.inner = module

    def forward(self, *args: Any, **options: Any) -> Tensor:
        return self.inner.read(*args, **options)


class Trainer:
    """Trains ``module`` on a corpus; ``run`` returns when it is done, ``folder`` holds checkpoint and log."""

    def __init__(
        self,
        decoder: Decoder,
        module: PipelineDraftModule,
        corpus: Corpus,
        source: Stored | Streamed,
        config: TrainConfig,
        folder: Path,
    ) -> None:
        self.decoder, self.corpus, self.source, self.config, self.folder = decoder, corpus, source, config, folder
        self.anchors = module.config.anchors
        self.law = MomentLaw(
            decoder.num_layers,
            decoder.head_cost,
            module.config.window,
            min_stages=config.min_stages,
            max_stages=config.max_stages,
            expected_acceptance=config.expected_acceptance,
        )
        self.accelerator = Accelerator(mixed_precision=config.mixed_precision)
        optimizers = make_optimizers(module, config.learning_rate, config.head_learning_rate, config.weight_decay)
        self.module, *self.optimizers = self.accelerator.prepare(_Reader(module), *optimizers)
        self.plain_module = module
        self.head = decoder.model.lm_head.weight[module.draft_ids.to(decoder.device)]  # [draft_vocab_size, hidden_size]
        self.softcap = getattr(decoder.config, "final_logit_softcapping", None)
        self.step = 0
        self.seconds = 0.0
        self._choices: dict[tuple[int, ...], Tensor] = {}
        self.num_steps = config.max_steps or max(1, round(config.epochs * self._steps_an_epoch()))

    def _steps_an_epoch(self) -> int:
        made = sum(1 for _ in batches(self.corpus.train, self.config.batch_tokens, "0"))
        return max(1, made // (self.config.accumulate * self.accelerator.num_processes))

    # --- one step

    def loss(self, chats: Sequence[Conversation], moment: Moment) -> Tensor:
        """Mean KL(target ‖ draft) over the positions that ask."""
        select = padded(chats)[1].to(self.decoder.device)
        states = self.source.states(chats)
        read = self.module(states, moment.kinds(self.anchors), window=moment.window, select=select)
        with torch.no_grad():
            known = self.decoder.base.norm(states[-1][select].to(self.decoder.dtype))
        return draft_loss(read, self.plain_module.head.weight, known, self.head, self.softcap)

    def _update(self, work: Iterator[list[Conversation]]) -> float:
        dice = random.Random(f"{self.config.seed}:{self.step}:{self.accelerator.process_index}")
        config = self.config
        set_rate(self.optimizers, rate_at(self.step, self.num_steps, config.warmup_steps, config.decay_share))
        total = 0.0
        for _ in range(self.config.accumulate):
            with self.accelerator.autocast():
                loss = self.loss(next(work), self.law.draw(dice)) / self.config.accumulate
            self.accelerator.backward(loss)
            total += float(loss.detach())
        norm = self.accelerator.clip_grad_norm_(self.module.parameters(), self.config.clip_norm)
        if not math.isfinite(total) or (norm is not None and not bool(torch.isfinite(norm))):
            raise TrainingError(
                f"the loss is {total} at step {self.step}: lower the learning rate, now {self.config.learning_rate:g}; "
                f"the last good checkpoint is in {self.folder}"
            )
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        return total

    def _work(self) -> Iterator[list[Conversation]]:
        """Batches of this process from the present step on, without end."""
        config, each = self.config, self._steps_an_epoch()
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        epoch, skip = divmod(self.step, each)
        while True:
            made = list(batches(self.corpus.train, config.batch_tokens, f"{config.seed}:{epoch}"))[rank::world]
            yield from made[skip * config.accumulate : each * config.accumulate]
            epoch, skip = epoch + 1, 0

    # --- the run

    def run(self) -> dict[str, Any]:
        """Trains to the end, from the checkpoint if there is one; returns the last check."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.load()
        work, saved_s, began_s = self._work(), time.monotonic(), time.monotonic() - self.seconds
        losses: list[float] = []
        quiet = not self.accelerator.is_main_process
        with tqdm(total=self.num_steps, initial=self.step, desc="training", unit="step", disable=quiet) as bar:
            while self.step < self.num_steps:
                began_s += wait_while_paused()
                losses.append(self._update(work))
                self.seconds = time.monotonic() - began_s
                bar.set_postfix(loss=f"{sum(losses[-50:]) / len(losses[-50:]):.3f}", refresh=False)
                bar.update()
                if self.step % self.config.check_every_steps == 0 or self.step == self.num_steps:
                    self._log({"loss": sum(losses) / len(losses)} | self.check())
                    losses.clear()
                if time.monotonic() - saved_s > self.config.save_every_s:
                    self.save()
                    saved_s = time.monotonic()
        self.save()
        return self.check()

    def _log(self, entry: dict[str, Any]) -> None:
        if self.accelerator.is_main_process:
            line = {"step": self.step, "seconds": round(self.seconds, 1), **entry}
            with self.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    # --- checkpoints

    @property
    def checkpoint(self) -> Path:
        """Weights, optimiser and step, replaced in one piece."""
        return self.folder / "checkpoint.pt"

    @property
    def log(self) -> Path:
        """One JSON object a check: step, seconds, mean loss since the last one, agreement and acceptance."""
        return self.folder / "log.jsonl"

    def save(self) -> None:
        """Writes the checkpoint; an older one stays until the new one is whole."""
        if not self.accelerator.is_main_process:
            return
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "module": self.plain_module.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "corpus": self.corpus.digest,
            "config": asdict(self.config),
        }
        temporary = self.checkpoint.with_suffix(".tmp")
        try:
            torch.save(state, temporary)
        except (OSError, RuntimeError) as error:
            temporary.unlink(missing_ok=True)
            raise TrainingError(f"cannot write {temporary} ({error}); the checkpoint before it is whole") from error
        temporary.replace(self.checkpoint)

    def load(self) -> None:
        """Goes on from the checkpoint, if there is one of the same corpus and settings."""
        if not self.checkpoint.exists():
            return
        state = torch.load(self.checkpoint, map_location=self.decoder.device, weights_only=True)
        if state["corpus"] != self.corpus.digest or state["config"] != asdict(self.config):
            raise TrainingError(
                f"{self.checkpoint} belongs to other tokens or settings: delete it, or name another folder"
            )
        self.plain_module.load_state_dict(state["module"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.seconds = state["step"], state["seconds"]
        self._forget_log()

    def _forget_log(self) -> None:
        """Drops the entries after the checkpoint: the steps they speak of will be done again."""
        if self.log.exists() and self.accelerator.is_main_process:
            lines = self.log.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if json.loads(line)["step"] <= self.step]
            self.log.write_text("".join(kept), encoding="utf-8")

    # --- how well it drafts

    @torch.no_grad()
    def check(self, stages: Sequence[int] = (4, 16), max_chats: int = 64) -> dict[str, Any]:
        """Agreement with the target's greedy choice on held-out texts by n and fill, and the acceptance it implies."""
        self.module.eval()
        chats = sorted(self.corpus.held_out[:max_chats], key=lambda chat: len(chat.ids))
        found: dict[str, Any] = {}
        for num_stages in stages:
            if num_stages <= self.decoder.num_layers and chats:
                plan = even(self.decoder.num_layers, num_stages)
                fills = sorted({min(fill, num_stages) for fill in (1, 2, 3, 4, 6, 8, 12, 16)})
                shares = {fill: self._agreement(chats, row_kinds(plan, self.anchors, fill)) for fill in fills}
                by_fill = [shares[max(f for f in fills if f <= fill)] for fill in range(1, num_stages + 1)]
                found[f"n={num_stages}"] = {
                    "agreement": {str(fill): round(share, 4) for fill, share in shares.items()},
                    "acceptance": round(acceptance_by_fill(by_fill), 4),
                }
        self.module.train()
        return found

    def _chosen(self, chats: Sequence[Conversation], hidden: Tensor) -> Tensor:
        """The target's greedy choices after hidden states [asked, hidden_size], remembered  # int64 [asked]"""
        name = tuple(map(id, chats))
        if name not in self._choices:
            self._choices[name] = self.decoder.head(hidden[None].to(self.decoder.dtype)).argmax(dim=-1)
        return self._choices[name]

    def _agreement(self, chats: Sequence[Conversation], kinds: tuple[int, ...]) -> float:
        right = asked = 0
        for batch in cut(list(chats), self.config.batch_tokens):
            select = padded(batch)[1].to(self.decoder.device)
            states = self.source.states(batch)
            with self.accelerator.autocast():
                logits = self.plain_module(states, kinds, select=select)
            drafted = self.plain_module.draft_ids[logits.argmax(dim=-1)]
            truth = self._chosen(batch, states[-1][select])
            right += int((drafted == truth).sum())
            asked += len(truth)
        return right / asked
