"""The target writes its own training text: a user's message, then its answer, many conversations at a time.

The rows of a batch share one clock but not one text: when a conversation ends, the next one begins in the same row,
and the mask hides from it what stood there before. So no row waits for another.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from ..decode.generate import as_ids
from ..target.layers import Decoder
from ..target.load import Target, versions
from .attention import Memory, grouped_attention
from .pause import wait_while_paused
from .progress import progress
from .tokens import Conversation, TokensError, check_ids, load_shard, save_shard

OPENERS = Path(__file__).with_name("openers.json")
REPEAT_TOKENS = 12  # an answer ends before it repeats so many tokens: small models run in circles


@dataclass(frozen=True)
class WriterConfig:
    """How conversations are written.

    ``rows``: conversations at a time; ``span_tokens``: clock ticks before the memory is emptied. A message begins with
    one of our openers in ``opener_share`` of the cases. Each answer draws its temperature from ``answer_temperatures``
    (repeat one to make it likelier); 0 is greedy.
    """

    rows: int = 128
    span_tokens: int = 448
    max_message_tokens: int = 96
    max_answer_tokens: int = 224
    opener_share: float = 0.75
    message_temperature: float = 0.9
    answer_temperatures: tuple[float, ...] = (0.0, 0.0, 0.6, 1.0)
    seed: int = 0


def write_shards(
    target: Target, folder: Path, num_tokens: int, config: WriterConfig | None = None, shard_tokens: int = 100_000
) -> list[Path]:
    """Writes shards into ``folder`` until they hold ``num_tokens`` tokens; what is there already is kept and counted.

    A killed run loses the shard it was writing, no more. Stands still while there is a PAUSE file.
    """
    config = config or WriterConfig()
    writer = Writer(target, config)
    notes = {"target": target.name, "dtype": str(target.dtype).removeprefix("torch."), **asdict(config), **versions()}
    paths: list[Path] = []
    done = 0
    with progress(total=num_tokens, unit="token", unit_scale=True, desc="text") as bar:
        while done < num_tokens:
            path = folder / f"tokens-{len(paths):05d}.safetensors"
            if path.exists():
                chats = _written_by(target, path)
                bar.update(sum(len(chat.ids) for chat in chats))
            else:
                chats = []
                left = min(shard_tokens, num_tokens - done)
                for chat in writer.conversations(len(paths)):
                    chats.append(chat)
                    left -= len(chat.ids)
                    bar.update(len(chat.ids))
                    if left <= 0:
                        break
                save_shard(path, chats, notes | {"shard": len(paths)})
            done += sum(len(chat.ids) for chat in chats)
            paths.append(path)
    return paths


def _written_by(target: Target, path: Path) -> list[Conversation]:
    chats, notes = load_shard(path)
    if notes.get("target", target.name) != target.name:
        raise TokensError(f"{path} was written by {notes['target']}, not {target.name}: name another folder")
    check_ids(chats, target, str(path))
    return chats


@dataclass(frozen=True)
class Frame:
    """What the chat template puts around a message: ids before it and ids between it and the answer."""

    before: list[int]
    between: list[int]
    eos: frozenset[int]

    @classmethod
    def of(cls, target: Target) -> Frame:
        """Reads the template of the target's tokenizer. Raises :class:`TokensError` if there is none."""
        if not target.tokenizer.chat_template:
            raise TokensError(f"{target.name} has no chat template: name a dataset to train on instead")
        mark = "MESSAGE"
        text = target.tokenizer.apply_chat_template(
            [{"role": "user", "content": mark}], add_generation_prompt=True, tokenize=False
        )
        first, _, second = text.partition(mark)
        before, between = (target.tokenizer(part, add_special_tokens=False)["input_ids"] for part in (first, second))
        eos = as_ids(getattr(target.model.generation_config, "eos_token_id", None))
        if not before or not between:
            raise TokensError(f"the chat template of {target.name} does not say where a message ends")
        if not eos:
            raise TokensError(f"{target.name} never ends an answer: its generation config has no eos_token_id")
        return cls(before, between, frozenset(eos))


@dataclass
class _Row:
    """One conversation being written. ``forced``: ids to come that are not the model's to choose."""

    forced: deque[int]
    temperature: float
    ids: list[int] = field(default_factory=list)
    message_start: int = 0
    answer_start: int | None = None
    grams: set[tuple[int, ...]] = field(default_factory=set)

    @property
    def answered(self) -> bool:
        """Whether there is something to learn."""
        return self.answer_start is not None and len(self.ids) > self.answer_start

    def conversation(self) -> Conversation:
        assert self.answer_start is not None
        learn = [position >= self.answer_start for position in range(len(self.ids))]
        return Conversation(self.ids, learn, self.temperature)

    def repeats(self) -> bool:
        """Whether the answer's last tokens stood in it before."""
        if self.answer_start is None or len(self.ids) - self.answer_start < REPEAT_TOKENS:
            return False
        gram = tuple(self.ids[-REPEAT_TOKENS:])
        known = gram in self.grams
        self.grams.add(gram)
        return known


class Writer:
    """Writes conversations with a target, the same ones for the same shard number and settings on one machine."""

    def __init__(self, target: Target, config: WriterConfig | None = None) -> None:
        self.config = config or WriterConfig()
        self.name, self.decoder = target.name, Decoder(target.model)
        self.frame = Frame.of(target)
        groups = json.loads(OPENERS.read_text(encoding="utf-8"))
        self.openers: list[list[list[int]]] = [
            [target.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
            for texts in groups.values()
        ]
        self.special = frozenset(target.tokenizer.all_special_ids)
        self._messages: set[tuple[int, ...]] = set()

    def conversations(self, shard: int) -> Iterator[Conversation]:
        """Conversations without end. No message occurs twice within a shard."""
        self._messages.clear()
        for span in range(2**32):
            written = 0
            for chat in self._span(f"{self.config.seed}:{shard}:{span}"):
                written += 1
                yield chat
            if not written:
                raise TokensError(
                    f"{self.name} ended none of {self.config.rows} messages within {self.config.max_message_tokens} "
                    "tokens: name a dataset to train on instead"
                )

    @torch.inference_mode()
    def _span(self, seed: str) -> Iterator[Conversation]:
        """The batch from an empty memory to a full one."""
        config, dice = self.config, random.Random(seed)
        device = self.decoder.device
        noise = torch.Generator(device).manual_seed(dice.getrandbits(62))
        rows = [self._begin(dice) for _ in range(config.rows)]
        starts = torch.zeros(config.rows, dtype=torch.int64)
        memory = Memory()
        for clock in range(config.span_tokens):
            wait_while_paused()
            newest = torch.tensor([[row.ids[-1]] for row in rows], device=device)
            heat = torch.tensor([self._temperature(row) for row in rows], device=device)
            chosen = _sample(self._logits(newest, clock, starts, memory), heat, noise).tolist()
            for index, (row, token) in enumerate(zip(rows, chosen, strict=True)):
                if self._extend(row, token):
                    continue
                if row.answered:
                    yield row.conversation()
                rows[index] = self._begin(dice)
                starts[index] = clock + 1
        yield from (row.conversation() for row in rows if row.answered)

    def _begin(self, dice: random.Random) -> _Row:
        forced = deque(self.frame.before)
        if dice.random() < self.config.opener_share:
            forced.extend(dice.choice(dice.choice(self.openers)))
        row = _Row(forced, dice.choice(self.config.answer_temperatures), message_start=len(self.frame.before))
        row.ids.append(row.forced.popleft())
        return row

    def _temperature(self, row: _Row) -> float:
        return self.config.message_temperature if row.answer_start is None else row.temperature

    def _extend(self, row: _Row, token: int) -> bool:
        """Adds a token to the row; whether the conversation goes on."""
        if row.forced:
            row.ids.append(row.forced.popleft())
            return True
        if row.answer_start is None:
            return self._extend_message(row, token)
        row.ids.append(token)
        if row.repeats():
            del row.ids[-REPEAT_TOKENS:]
            return False
        return token not in self.frame.eos and len(row.ids) - row.answer_start < self.config.max_answer_tokens

    def _extend_message(self, row: _Row, token: int) -> bool:
        if token == self.frame.between[0]:
            message = tuple(row.ids[row.message_start :])
            if not message or message in self._messages:
                return False
            self._messages.add(message)
            row.forced.extend(self.frame.between[1:])
            row.ids.append(token)
            row.answer_start = len(row.ids) + len(row.forced)
            return True
        row.ids.append(token)
        return token not in self.special and len(row.ids) - row.message_start < self.config.max_message_tokens

    def _logits(self, newest: Tensor, clock: int, starts: Tensor, memory: Memory) -> Tensor:
        """float32 [rows, vocab_size] after the newest ids [rows, 1]."""
        decoder = self.decoder
        hidden = decoder.base.embed_tokens(newest)
        memory.clock = clock
        starts = starts.to(hidden.device)
        place = torch.arange(memory.capacity, device=hidden.device)[None]  # [1, keys]
        layers = range(decoder.num_layers)
        masks: dict[int | None, Tensor | None] = {}
        for window in {decoder.window(layer) for layer in layers}:
            first = starts if window is None else torch.maximum(starts, torch.tensor(clock - window + 1))
            seen = (place >= first[:, None]) & (place <= clock)
            mask = torch.zeros(seen.shape, dtype=hidden.dtype, device=hidden.device)
            masks[window] = mask.masked_fill_(~seen, torch.finfo(hidden.dtype).min)[:, None, None]
        positions = (clock - starts)[:, None]
        by_layer = {layer: masks[decoder.window(layer)] for layer in layers}
        with grouped_attention(decoder.config):  # here alone: between two conversations the model is as it was
            hidden = decoder.drive(layers, hidden, positions, by_layer, memory)
        return decoder.head(hidden[None, :, 0])


def _sample(logits: Tensor, temperature: Tensor, noise: torch.Generator) -> Tensor:
    """One id a row  # int64 [rows]. logits: float32 [rows, vocab_size], temperature: [rows], 0 for greedy."""
    greedy = logits.argmax(dim=-1)
    heat = temperature.clamp(min=1e-3)[:, None]
    cumulated = torch.softmax(logits / heat, dim=-1).cumsum(dim=-1)
    dice = torch.rand(len(logits), 1, generator=noise, device=logits.device) * cumulated[:, -1:]
    drawn = torch.searchsorted(cumulated, dice, right=True)[:, 0].clamp(max=logits.shape[1] - 1)
    return torch.where(temperature == 0, greedy, drawn)
