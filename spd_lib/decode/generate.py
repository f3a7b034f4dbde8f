"""``spd_lib.generate(model, input_ids, ...)``: decode a batch of prompts, row by row, and say how it went."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import StoppingCriteria, StopStringCriteria
from transformers.utils import ModelOutput

from ..core.plan import Plan
from ..core.trace import Trace
from ..draft import Drafter, make_drafter
from ..target.pipeline import Pipeline
from .engine import OnCommit, decode
from .sampling import COUPLINGS, GREEDY_BELOW, Sampler, fresh_seed, make_rule, warpers
from .stopping import StopRule

REFUSED = {
    "num_beams": "SPD decodes one sequence, not beams",
    "assistant_model": "give a drafter instead",
    "inputs_embeds": "give input_ids: drafters and the Trace need token ids",
    "cache": "SPD stages own their memory and cannot start from a filled cache",
    "past_key_values": "SPD stages own their memory and cannot start from a filled cache",
    "prompt_lookup_num_tokens": "give drafter='prompt-lookup' instead",
    "do_sample": "give a temperature: 0 is greedy, anything above samples",
}


@dataclass
class GenerateOutput(ModelOutput):
    """``sequences``: int64 [rows, prompt + new tokens], shorter rows end in the pad token. ``traces``: one a row."""

    sequences: torch.LongTensor | None = None
    traces: list[Trace] | None = None


@dataclass(frozen=True)
class Request:
    """What to do with every row. ``coupling``: ``None`` is greedy decoding. ``processors`` end with the warpers."""

    model: nn.Module
    drafter: str | Path | Drafter
    num_stages: int
    plan: str | Plan | Sequence[int]
    max_new_tokens: int
    coupling: str | None
    seed: int | None
    first_row: int
    eos_token_ids: tuple[int, ...]
    pad_token_id: int
    processors: Sequence[Any]
    criteria: Sequence[StoppingCriteria]
    streamer: Any
    on_commit: OnCommit | None
    return_dict: bool

    def __post_init__(self) -> None:
        for name in ("num_stages", "max_new_tokens", "first_row", "seed"):
            value = getattr(self, name)
            if name != "seed" or value is not None:
                object.__setattr__(self, name, whole(name, value))  # both doors lead here

    def sampler(self, row: int, seed: int, pipeline: Pipeline) -> Sampler:
        """The sampler of row ``row`` of this call."""
        vocab_size, device = pipeline.decoder.vocab_size, pipeline.decoder.device
        if self.coupling is None:
            return Sampler.greedy(vocab_size, device, self.processors)
        rule = make_rule(self.coupling, seed=seed, row=self.first_row + row, vocab_size=vocab_size, device=device)
        return Sampler(rule, self.processors, vocab_size=vocab_size, device=device)


def generate(
    model: nn.Module,
    input_ids: Tensor,
    *,
    attention_mask: Tensor | None = None,
    drafter: str | Path | Drafter = "prompt-lookup",
    num_stages: int = 4,
    plan: str | Plan | Sequence[int] = "even",
    max_new_tokens: int = 128,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    coupling: str = "gumbel",
    seed: int | None = None,
    first_row: int = 0,
    num_return_sequences: int = 1,
    eos_token_id: int | Sequence[int] | None = None,
    pad_token_id: int | None = None,
    stop_strings: str | Sequence[str] | None = None,
    tokenizer: Any = None,
    logits_processor: Sequence[Any] = (),
    stopping_criteria: Sequence[StoppingCriteria] = (),
    streamer: Any = None,
    on_commit: OnCommit | None = None,
    return_dict_in_generate: bool = False,
    **refused: Any,
) -> Tensor | GenerateOutput:
    """Decodes ``input_ids`` by Speculative Pipeline Decoding; the text is the target's own (see the rules below).

    ``input_ids``: int64 [rows, prompt_tokens], left-padded if ``attention_mask`` [rows, prompt_tokens] says so. Returns
    int64 [rows · num_return_sequences, prompt_tokens + new_tokens], or a :class:`GenerateOutput` with the Traces too.

    ``drafter``: a name, a folder, a hub id, trained weights, or an object with ``begin``, ``propose`` and ``rollback``.
    ``plan``: "even", "balanced" or the layers per stage.

    ``temperature`` 0 (below 1e-5) is greedy: in float32 the text equals plain greedy decoding. Above,
    ``coupling="gumbel"`` gives the very text of plain sampling with this ``seed``, whatever the drafter and
    ``num_stages``; ``coupling="rejection"`` gives a text of the same law and accepts most. Neither repeats the draws
    of transformers' own ``do_sample``. Without a ``seed`` (0 … 2⁶⁴ − 1), one is drawn from torch's default generator.
    Row r uses the random numbers of row ``first_row + r``, so a row can be repeated alone.

    ``eos_token_id``: the model's own by default, ``[]`` for none. ``stop_strings`` need the ``tokenizer`` and stay in
    the text, as in transformers. ``on_commit(token_id, origin)`` hears of each committed token; like a ``streamer`` it
    takes one row only. Ctrl-C returns what is committed so far. Raises ``ValueError`` naming what cannot be honoured.
    """
    for name, value in refused.items():
        raise ValueError(f"{name}={value!r} is not supported: {REFUSED.get(name, 'generate() does not know it')}")
    chain = warpers(temperature, None if top_k is None else whole("top_k", top_k), top_p)
    if coupling not in COUPLINGS:
        raise ValueError(f"unknown coupling {coupling!r}; the known ones are {', '.join(COUPLINGS)}")
    sampled = temperature >= GREEDY_BELOW
    if num_return_sequences < 1 or (num_return_sequences > 1 and not sampled):
        raise ValueError(
            f"num_return_sequences={num_return_sequences}: must be at least 1, and greedy decoding has only one text"
        )
    generation_config = getattr(model, "generation_config", None)
    eos_token_ids = as_ids(getattr(generation_config, "eos_token_id", None) if eos_token_id is None else eos_token_id)
    if pad_token_id is None:
        pad_token_id = getattr(generation_config, "pad_token_id", None)
    request = Request(
        model=model,
        drafter=drafter,
        num_stages=num_stages,
        plan=plan,
        max_new_tokens=max_new_tokens,
        coupling=coupling if sampled else None,
        seed=seed,
        first_row=first_row,
        eos_token_ids=eos_token_ids,
        pad_token_id=padding(pad_token_id, eos_token_ids),
        processors=[*logits_processor, *chain],
        criteria=[*stopping_criteria, *stop_string_criteria(stop_strings, tokenizer)],
        streamer=streamer,
        on_commit=on_commit,
        return_dict=return_dict_in_generate,
    )
    if isinstance(input_ids, Tensor) and num_return_sequences > 1:
        input_ids = input_ids.repeat_interleave(num_return_sequences, dim=0)
        if attention_mask is not None:
            attention_mask = attention_mask.repeat_interleave(num_return_sequences, dim=0)
    return run(request, input_ids, attention_mask)


def run(request: Request, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor | GenerateOutput:
    """Decodes all rows of a request, one after the other, each without its padding."""
    pipeline = Pipeline(request.model, request.num_stages, request.plan)
    prompts = _prompts(input_ids, attention_mask, pipeline, request.max_new_tokens)
    if len(prompts) > 1 and (request.streamer is not None or request.on_commit is not None):
        raise ValueError(f"a streamer (or on_commit) takes one row, the batch has {len(prompts)}")
    drafter = make_drafter(request.drafter)
    seed = fresh_seed() if request.seed is None and request.coupling is not None else request.seed or 0
    traces: list[Trace] = []
    for row, prompt in enumerate(prompts):
        device = pipeline.decoder.device
        stop = StopRule(len(prompt), request.max_new_tokens, request.eos_token_ids, request.criteria, device)
        sampler = request.sampler(row, seed, pipeline)
        trace = _decode_row(request, pipeline, drafter, sampler, stop, prompt, input_ids)
        trace.notes.update(_notes(request, pipeline, drafter, seed, row))
        traces.append(trace)
        if trace.stop_reason == "interrupted":
            break
    sequences = _assembled(input_ids, [trace.token_ids for trace in traces], request.pad_token_id)
    return GenerateOutput(sequences, traces) if request.return_dict else sequences


def _decode_row(
    request: Request,
    pipeline: Pipeline,
    drafter: Drafter,
    sampler: Sampler,
    stop: StopRule,
    prompt: list[int],
    input_ids: Tensor,
) -> Trace:
    streamer, listener = request.streamer, request.on_commit
    if streamer is None:
        return decode(pipeline, drafter, sampler, stop, prompt, listener)

    def stream(token_id: int, origin: str) -> None:
        streamer.put(torch.tensor([token_id]))
        if listener is not None:
            listener(token_id, origin)

    try:
        streamer.put(input_ids.cpu())
        return decode(pipeline, drafter, sampler, stop, prompt, stream)
    finally:
        streamer.end()  # also after an error, or whoever reads the stream would wait forever


def _prompts(input_ids: Tensor, attention_mask: Tensor | None, pipeline: Pipeline, budget: int) -> list[list[int]]:
    """The rows without their left padding, checked against the model."""
    if not isinstance(input_ids, Tensor) or input_ids.ndim != 2 or input_ids.is_floating_point():
        found = list(input_ids.shape) if isinstance(input_ids, Tensor) else type(input_ids).__name__
        raise ValueError(f"input_ids must be token ids of shape [rows, prompt_tokens], got {found}")
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.to(input_ids.device)
    if mask.shape != input_ids.shape:
        raise ValueError(f"attention_mask has shape {list(mask.shape)}, input_ids {list(input_ids.shape)}")
    if bool((mask[:, 1:] < mask[:, :-1]).any()):
        raise ValueError("attention_mask has padding on the right or inside; set tokenizer.padding_side = 'left'")
    prompts = [row[keep.bool()].tolist() for row, keep in zip(input_ids, mask, strict=True)]
    decoder = pipeline.decoder
    for row, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"row {row} has an empty prompt; SPD needs at least one token to start from")
        if not 0 <= min(prompt) <= max(prompt) < decoder.vocab_size:
            outside = max(prompt) if min(prompt) >= 0 else min(prompt)
            raise ValueError(
                f"token id {outside} is not in the model's vocabulary of {decoder.vocab_size} ids: is this the "
                "model's own tokenizer?"
            )
        if decoder.max_positions is not None and len(prompt) + budget > decoder.max_positions:
            raise ValueError(
                f"{len(prompt)} prompt tokens and max_new_tokens={budget} exceed the model's "
                f"{decoder.max_positions} positions"
            )
    return prompts


def _assembled(input_ids: Tensor, new_ids: list[list[int | None]], pad_token_id: int) -> Tensor:
    """Prompts as they came, then the new tokens, then padding: int64 [rows, prompt_tokens + longest]."""
    longest = max((len(ids) for ids in new_ids), default=0)
    out = input_ids.new_full((input_ids.shape[0], longest), pad_token_id)
    for row, ids in enumerate(new_ids):
        out[row, : len(ids)] = torch.tensor(ids, dtype=out.dtype)
    return torch.cat([input_ids, out], dim=1)


def _notes(request: Request, pipeline: Pipeline, drafter: Drafter, seed: int, row: int) -> dict[str, Any]:
    """What a reader of the Trace wants to know about the run."""
    notes: dict[str, Any] = {
        "model": getattr(request.model, "name_or_path", "") or type(request.model).__name__,
        "drafter": str(request.drafter) if isinstance(request.drafter, (str, Path)) else type(drafter).__name__,
        "plan": {"name": pipeline.plan.name, "layers": list(pipeline.plan.counts)},
        "max_new_tokens": request.max_new_tokens,
        "coupling": request.coupling or "greedy",
    }
    return notes if request.coupling is None else notes | {"seed": seed, "row": request.first_row + row}


def stop_string_criteria(stop_strings: str | Sequence[str] | None, tokenizer: Any) -> list[StoppingCriteria]:
    """transformers' own stop-string test. Raises ``ValueError`` without a tokenizer or with an empty string."""
    if not stop_strings:
        return []
    strings = [stop_strings] if isinstance(stop_strings, str) else list(stop_strings)
    if tokenizer is None:
        raise ValueError(f"stop_strings={strings} need the tokenizer: pass tokenizer=...")
    if not all(isinstance(string, str) and string for string in strings):
        raise ValueError(f"stop_strings must be non-empty strings, got {strings}")
    return [StopStringCriteria(tokenizer, strings)]


def as_ids(given: int | Sequence[int] | None) -> tuple[int, ...]:
    """No id, one, or several, as a tuple."""
    if given is None:
        return ()
    try:
        return (operator.index(given),)  # type: ignore[arg-type]
    except TypeError:
        return tuple(operator.index(token_id) for token_id in given)  # type: ignore[union-attr]


def whole(name: str, value: Any) -> int:
    """``value`` as a plain int, whoever's integer it is. Raises ``ValueError`` naming what is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None


def padding(pad_token_id: int | None, eos_token_ids: tuple[int, ...]) -> int:
    """The id that fills shorter rows: the pad token, else the first end-of-sequence token, else 0."""
    return pad_token_id if pad_token_id is not None else (eos_token_ids or (0,))[0]
