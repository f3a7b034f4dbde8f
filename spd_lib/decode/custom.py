"""The door through transformers: ``model.generate(**inputs, custom_generate=spd_lib.decoder(...))``.

transformers prepares logits processors, stopping criteria and the generation config and hands them over; what it does
not hand over (streamer, tokenizer, assistant model) is given to the factory or refused here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    EosTokenCriteria,
    ExponentialDecayLengthPenalty,
    ForcedEOSTokenLogitsProcessor,
    GenerationConfig,
    MaxLengthCriteria,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    PrefixConstrainedLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SynthIDTextWatermarkLogitsProcessor,
    TemperatureLogitsWarper,
)

from ..core.plan import Plan
from ..draft import Drafter
from .generate import REFUSED, GenerateOutput, Request, as_ids, padding, run, stop_string_criteria
from .sampling import COUPLINGS, GREEDY_BELOW

IGNORED_INPUTS = {"attention_mask", "position_ids", "use_cache", "logits_to_keep"}  # handled or without effect here
REFUSED_CONFIG = {
    "output_scores": "SPD keeps no scores",
    "output_logits": "SPD keeps no logits",
    "output_attentions": "SPD keeps no attentions",
    "output_hidden_states": "SPD keeps no hidden states",
    "penalty_alpha": "contrastive search is another decoding method",
    "dola_layers": "DoLa is another decoding method",
    "prompt_lookup_num_tokens": REFUSED["prompt_lookup_num_tokens"],
    "assistant_early_exit": REFUSED["assistant_model"],
    "use_mtp": REFUSED["assistant_model"],
    "constraints": "constrained beam search is another decoding method",
    "force_words_ids": "constrained beam search is another decoding method",
    "guidance_scale": "classifier-free guidance runs the model a second time",
}
COUNT_PADDING = (
    ExponentialDecayLengthPenalty,
    ForcedEOSTokenLogitsProcessor,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
)
NEED_ALL_ROWS = (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    PrefixConstrainedLogitsProcessor,
    SynthIDTextWatermarkLogitsProcessor,
)


def decoder(
    *,
    drafter: str | Path | Drafter = "prompt-lookup",
    num_stages: int = 4,
    plan: str | Plan | Sequence[int] = "even",
    coupling: str = "gumbel",
    seed: int | None = None,
    first_row: int = 0,
    streamer: Any = None,
    tokenizer: Any = None,
    stop_strings: str | Sequence[str] | None = None,
) -> Callable[..., Tensor | GenerateOutput]:
    """A ``custom_generate`` callable for transformers' ``model.generate``.

    Streamer, tokenizer and stop strings belong here, since transformers hands none of them to a callable. Lengths,
    temperature, processors, end-of-sequence ids and padding come from ``model.generate`` as usual. With
    ``return_dict_in_generate=True`` the result holds the Traces. See :func:`spd_lib.generate` for the rest.
    """
    if coupling not in COUPLINGS:
        raise ValueError(f"unknown coupling {coupling!r}; the known ones are {', '.join(COUPLINGS)}")
    own_criteria = stop_string_criteria(stop_strings, tokenizer)

    def custom_generate(
        model: nn.Module,
        input_ids: Tensor,
        logits_processor: Sequence[Any],
        stopping_criteria: Sequence[Any],
        generation_config: GenerationConfig,
        **model_inputs: Any,
    ) -> Tensor | GenerateOutput:
        _refuse(model, generation_config, model_inputs)
        mask = model_inputs.get("attention_mask")
        logits_processor = _for_single_rows(logits_processor, mask, input_ids.shape[0])
        processors, sampled = _sampling(logits_processor, generation_config)
        eos_ids = as_ids(generation_config.eos_token_id)
        request = Request(
            model=model,
            drafter=drafter,
            num_stages=num_stages,
            plan=plan,
            max_new_tokens=generation_config.max_length - input_ids.shape[1],
            coupling=coupling if sampled else None,
            seed=seed,
            first_row=first_row,
            eos_token_ids=eos_ids,
            pad_token_id=padding(generation_config.pad_token_id, eos_ids),
            processors=processors,
            criteria=[*own_criteria, *_other_criteria(stopping_criteria)],
            streamer=streamer,
            on_commit=None,
            return_dict=bool(generation_config.return_dict_in_generate),
        )
        return run(request, input_ids, mask)

    return custom_generate


def _sampling(processors: Sequence[Any], config: GenerationConfig) -> tuple[list[Any], bool]:
    """The processors, and whether to sample: the same greedy gate as everywhere."""
    cold = [p for p in processors if isinstance(p, TemperatureLogitsWarper) and p.temperature < GREEDY_BELOW]
    sampled = bool(config.do_sample) and not cold
    return [p for p in processors if p not in cold], sampled


def _other_criteria(criteria: Sequence[Any]) -> list[Any]:
    """Without length and end of sequence, which the stop rule decides on unpadded rows."""
    return [c for c in criteria if not isinstance(c, (MaxLengthCriteria, EosTokenCriteria))]


def _refuse(model: nn.Module, config: GenerationConfig, model_inputs: dict[str, Any]) -> None:
    """Raises ``ValueError`` naming the first argument that cannot be honoured."""
    lost = _lost_arguments(model)
    for name, cure in (
        ("streamer", "transformers drops it here; give it to spd_lib.decoder(streamer=...)"),
        ("assistant_model", REFUSED["assistant_model"]),
        ("negative_prompt_ids", REFUSED_CONFIG["guidance_scale"]),
    ):
        if lost.get(name) is not None:
            if name == "streamer":
                lost[name].end()  # transformers has fed it the prompt, and its reader would wait for more
            raise ValueError(f"{name} is not supported: {cure}")
    if (config.num_beams or 1) > 1:
        raise ValueError(f"num_beams={config.num_beams} is not supported: {REFUSED['num_beams']}")
    for name, why in REFUSED_CONFIG.items():
        value = getattr(config, name, None)
        if value is not None and value is not False and not (name == "guidance_scale" and value == 1):
            raise ValueError(f"{name}={value!r} is not supported: {why}")
    for name, value in model_inputs.items():
        if value is None or name in IGNORED_INPUTS or (hasattr(value, "get_seq_length") and not value.get_seq_length()):
            continue
        raise ValueError(f"{name} is not supported: {REFUSED.get(name, 'SPD does not pass it to the layers')}")
    _refuse_positions(model_inputs.get("position_ids"), model_inputs.get("attention_mask"))


def _refuse_positions(position_ids: Tensor | None, mask: Tensor | None) -> None:
    """Tokens stand at 0, 1, 2 … after the padding; transformers prepares just these unless it is given others."""
    if position_ids is None:
        return
    counted = torch.ones_like(position_ids) if mask is None else mask.to(position_ids.device).long()
    if bool(((position_ids != counted.cumsum(-1) - 1) & (counted != 0)).any()):
        raise ValueError("position_ids are not supported: SPD counts positions from the first token of each row")


def _for_single_rows(processors: Sequence[Any], mask: Tensor | None, rows: int) -> list[Any]:
    """The processors as a row by itself, without padding, would have them.

    Raises ``ValueError`` naming one that counts from the padded start, or that has to see the whole batch.
    """
    lengths = None if mask is None else (mask == 0).sum(dim=1).cpu()  # padding of each row
    padded = lengths is not None and bool(lengths.any())
    single = []
    for processor in processors:
        name, skipped = type(processor).__name__, getattr(processor, "prompt_ignore_length", None)
        if isinstance(skipped, Tensor) and lengths is not None and torch.equal(skipped.cpu().long(), lengths):
            # transformers' own way of letting the penalty skip the padding, of which a single row has none
            processor, skipped = RepetitionPenaltyLogitsProcessor(processor.penalty), None
        if padded and (isinstance(processor, COUNT_PADDING) or skipped):
            raise ValueError(f"{name} counts padding; generate rows of different length one by one")
        if rows > 1 and (isinstance(processor, NEED_ALL_ROWS) or isinstance(skipped, Tensor)):
            raise ValueError(f"{name} needs to see all rows at once; generate them one by one")
        single.append(processor)
    return single


def _lost_arguments(model: nn.Module) -> dict[str, Any]:
    """The local variables of the ``model.generate`` that called us.

    transformers drops ``streamer`` and ``assistant_model`` without a word when ``custom_generate`` is a callable; only
    its own frame still knows that the user asked for them, and whoever reads that stream would wait forever.
    """
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "generate" and frame.f_locals.get("self") is model:
            return dict(frame.f_locals)
        frame = frame.f_back  # type: ignore[assignment]
    return {}
