"""The training loop: KL divergence to the target on the draft vocabulary, one moment of the pipe a batch."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from filelock import FileLock, Timeout
from torch import Tensor, nn

from ..draft.module import PipelineDraftModule
from ..files import whole_file
from ..target.fingerprint import weights_digest
from ..target.layers import Decoder
from .config import TrainConfig
from .draws import Moment, MomentLaw, batches
from .held_out import HeldOut
from .loss import draft_loss
from .optimizer import make_optimizers, rate_at, set_rate
from .pause import uninterrupted, wait_while_paused
from .precision import autocast, read_in
from .progress import progress
from .teacher import Stored, Streamed, padded
from .tokens import Conversation, Corpus, first_line


class TrainingError(ValueError):
    """Training cannot go on; the last good checkpoint is kept, and the message is one line that says what to do."""


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
        # Accelerate holds the processes together; places and precision are ours, so that one program may train twice.
        self.accelerator = Accelerator(device_placement=False, mixed_precision="no", cpu=decoder.device.type == "cpu")
        self.plain_module = module.to(decoder.device)
        self._began_from = weights_digest(module)
        optimizers = make_optimizers(module, config.learning_rate, config.head_learning_rate, config.weight_decay)
        self.module, *self.optimizers = self.accelerator.prepare(_Reader(module), *optimizers)
        self.head = decoder.model.lm_head.weight[module.draft_ids.to(decoder.device)]  # [draft_vocab_size, hidden_size]
        self.softcap = getattr(decoder.config, "final_logit_softcapping", None)
        # Before the end of what all chats have in common there is nothing to learn.
        chats = corpus.train if config.whole_chats else []
        self.learn_from = max(1, len(os.path.commonprefix([list(chat.ids) for chat in chats]))) if chats else None
        self.held_out = HeldOut(decoder, corpus.held_out, source, config.batch_tokens, config.mixed_precision)
        self.step = 0
        self.seconds = 0.0
        self._losses: list[float] = []  # since the last entry of the log
        self.num_steps = config.max_steps or max(1, round(config.epochs * self._steps_an_epoch()))

    def _steps_an_epoch(self) -> float:
        made = sum(1 for _ in batches(self.corpus.train, self.config.batch_tokens, f"{self.config.seed}:0"))
        return made / (self.config.accumulate * self.accelerator.num_processes)

    @property
    def step_tokens(self) -> int:
        """Tokens of one step of all processes, padding included."""
        return self.config.batch_tokens * self.config.accumulate * self.accelerator.num_processes

    # --- one step

    def loss(self, chats: Sequence[Conversation], moment: Moment) -> Tensor:
        """Mean KL(target ‖ draft) over the positions that ask."""
        select = padded(chats, self.learn_from)[1].to(self.decoder.device)
        precision = self.config.mixed_precision
        states = read_in(self.source.states(chats), precision)
        with autocast(self.decoder.device, precision):
            read = self.module(states, moment.kinds(self.anchors), window=moment.window, select=select)
        with torch.no_grad():
            known = self.decoder.base.norm(states[-1][select].to(self.decoder.dtype))
        known, head = read_in(known, precision), read_in(self.head, precision)
        return draft_loss(read, self.plain_module.head.weight, known, head, self.softcap)

    def _update(self, work: Iterator[list[Conversation]]) -> None:
        dice = random.Random(f"{self.config.seed}:{self.step}:{self.accelerator.process_index}")
        config = self.config
        set_rate(self.optimizers, rate_at(self.step, self.num_steps, config.warmup_steps, config.decay_share))
        total = 0.0
        for _ in range(self.config.accumulate):
            loss = self.loss(next(work), self.law.draw(dice)) / self.config.accumulate
            self.accelerator.backward(loss)
            total += float(loss.detach())
        norm = self.accelerator.clip_grad_norm_(self.module.parameters(), self.config.clip_norm)
        found = {"loss": total, "norm of the gradient": 0.0 if norm is None else float(norm)}
        for name, value in found.items():
            if not math.isfinite(value):
                raise TrainingError(
                    f"the {name} is {value} at step {self.step}: lower the learning rate, now "
                    f"{self.config.learning_rate:g} (what is saved of this run stays in {self.folder})"
                )
        with uninterrupted():
            for optimizer in self.optimizers:
                optimizer.step()
                optimizer.zero_grad()
            self._losses.append(total)
            self.step += 1

    def _work(self) -> Iterator[list[Conversation]]:
        """Batches of this process from the present step on, epoch after epoch, without end."""
        epochs = (batches(self.corpus.train, self.config.batch_tokens, f"{self.config.seed}:{i}") for i in count())
        world = self.accelerator.num_processes
        done = self.step * self.config.accumulate * world
        return islice(chain.from_iterable(epochs), done + self.accelerator.process_index, None, world)

    # --- the run

    def run(self) -> dict[str, Any]:
        """Trains to the end, from the checkpoint if there is one, and returns the last entry of the log.

        Whoever interrupts it finds the present step in the checkpoint.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            self.load()
            try:
                self._train()
                self.save()
            except KeyboardInterrupt:
                self.save()
                raise
        entries = self.entries()
        return entries[-1] if entries else {}

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Two runs in one folder would write over each other. The system frees the lock of whoever dies."""
        if not self.accelerator.is_main_process:
            yield
            return
        try:
            with FileLock(self.folder / "lock", timeout=0):
                yield
        except Timeout:
            raise TrainingError(f"another process is training in {self.folder}: wait for it, or end it") from None

    def _train(self) -> None:
        work, saved_s, began_s = self._work(), time.monotonic(), time.monotonic() - self.seconds
        self._check_if_due()
        with progress(total=self.num_steps, initial=self.step, desc="training", unit="step") as bar:
            while self.step < self.num_steps:
                began_s += wait_while_paused()
                self._update(work)
                self.seconds = time.monotonic() - began_s
                bar.set_postfix(loss=f"{sum(self._losses[-50:]) / len(self._losses[-50:]):.3f}", refresh=False)
                bar.update()
                self._check_if_due()
                if time.monotonic() - saved_s > self.config.save_every_s:
                    self.save()
                    saved_s = time.monotonic()

    # --- the log

    @property
    def log(self) -> Path:
        """One JSON object a check: step, tokens read, seconds, mean loss since the last one, agreement, acceptance."""
        return self.folder / "log.jsonl"

    def entries(self) -> list[dict[str, Any]]:
        """What the log says so far; half a line, left by a kill, says nothing."""
        try:
            lines = self.log.read_text(encoding="utf-8").split("\n")[:-1] if self.log.exists() else []
            entries = [json.loads(line) for line in lines]
            for entry in entries:
                int(entry["step"])
        except (ValueError, LookupError, TypeError) as error:
            raise TrainingError(f"cannot read {self.log} ({first_line(error)}): delete it") from error
        return entries

    def _check_if_due(self) -> None:
        if not self._losses or (self.step % self.config.check_every_steps and self.step != self.num_steps):
            return
        if self.accelerator.is_main_process:
            loss = sum(self._losses) / len(self._losses)
            entry = {"step": self.step, "tokens": self.step * self.step_tokens, "seconds": round(self.seconds, 1)}
            entry |= {"loss": loss} | self.check()
            self._write_log([*self.entries(), entry])
        self._losses.clear()

    def _write_log(self, entries: list[dict[str, Any]]) -> None:
        with whole_file(self.log) as place:
            place.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")

    def check(self, stages: Sequence[int] = (4, 16), max_chats: int = 64) -> dict[str, Any]:
        """Agreement and acceptance on held-out texts (:meth:`HeldOut.check`)."""
        return self.held_out.check(self.plain_module, stages, max_chats)

    # --- checkpoints

    @property
    def checkpoint(self) -> Path:
        """Weights, optimiser and step, replaced in one piece."""
        return self.folder / "checkpoint.pt"

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
            "began_from": self._began_from,
            "losses": self._losses,
            "processes": self.accelerator.num_processes,
        }
        try:
            with whole_file(self.checkpoint) as place:
                torch.save(state, place)
        except OSError as error:
            raise TrainingError(f"{error} (the checkpoint before it is whole)") from error
        except RuntimeError as error:  # torch's own word for a full disk
            reason = f"cannot write {str(self.checkpoint)!r}: {first_line(error)}"
            raise TrainingError(f"{reason} (the checkpoint before it is whole)") from error

    def load(self) -> None:
        """Goes on from the checkpoint, if there is one of the same corpus, settings and initial weights."""
        if self.checkpoint.exists():
            try:
                self._restore(torch.load(self.checkpoint, map_location=self.decoder.device, weights_only=True))
            except TrainingError:
                raise
            except Exception as error:  # whatever is in a file that is no checkpoint of this run
                reason = f"cannot read {self.checkpoint} ({first_line(error)})"
                raise TrainingError(f"{reason}: delete it to begin anew") from error
        if self.accelerator.is_main_process:
            # What was logged after the checkpoint will be logged again.
            done = self.step - bool(self._losses)
            self._write_log([entry for entry in self.entries() if entry["step"] <= done])

    def _restore(self, state: dict[str, Any]) -> None:
        found = state["corpus"], state["config"], state.get("began_from", self._began_from)
        if found != (self.corpus.digest, asdict(self.config), self._began_from):
            raise TrainingError(
                f"{self.checkpoint} belongs to other tokens, settings or initial weights: delete it to begin anew"
            )
        began, now = state.get("processes", 1), self.accelerator.num_processes
        if began != now:
            raise TrainingError(f"{self.checkpoint} is of {began} process(es), not {now}: go on with as many")
        self.plain_module.load_state_dict(state["module"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        if not all(bool(weight.isfinite().all()) for weight in self.plain_module.parameters()):
            raise ValueError("its weights are not finite")
        self.step, self.seconds, self._losses = int(state["step"]), float(state["seconds"]), state.get("losses", [])
        if not 0 <= self.step <= self.num_steps:
            raise ValueError(f"step {self.step} is not between 0 and {self.num_steps}")
