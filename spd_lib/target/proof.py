"""A model is accepted by proof, not by name: its staged form must compute what its own forward computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

import torch
from torch import Tensor, nn

from ..core.plan import even
from .layers import Decoder, UnsupportedModelError, model_type
from .stage import Stage

PREFILL_TOKENS, SINGLE_STEPS = 8, 4
SHORT_WINDOW = 6  # tokens; a window that the proof outgrows in the prefill and in the steps
FLOAT32_TOLERANCE = 1e-4  # max |a − b| ÷ max |b|

_proved: WeakSet[nn.Module] = WeakSet()


def _staged(decoder: Decoder, ids: list[int]) -> Tensor:
    """Logits [1 + steps, vocab_size] of a prefill and single steps through our stages."""
    plan = even(decoder.num_layers, min(3, decoder.num_layers))
    stages = [Stage(decoder, plan.layers(stage)) for stage in range(plan.num_stages)]
    rows = []
    for tokens in [ids[:PREFILL_TOKENS], *([token] for token in ids[PREFILL_TOKENS:])]:
        hidden = decoder.embed(tokens)
        for stage in stages:
            hidden = stage.step(hidden)
        rows.append(decoder.head(hidden[:, -1:])[0])
    return torch.stack(rows)


def _own_cached(model: nn.Module, ids: Tensor) -> Tensor:
    """The same logits from the model's own forward with its own cache."""
    output = model(input_ids=ids[:, :PREFILL_TOKENS], use_cache=True)
    rows = [output.logits[0, -1]]
    keyword = "cache" if hasattr(output, "cache") else "past_key_values"
    for index in range(PREFILL_TOKENS, ids.shape[1]):
        output = model(input_ids=ids[:, index : index + 1], use_cache=True, **{keyword: getattr(output, keyword)})
        rows.append(output.logits[0, -1])
    return torch.stack(rows).float()


def _distance(a: Tensor, b: Tensor) -> float:
    """max |a − b| ÷ max |b|; infinite where a value is not finite."""
    distance = ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item()
    return distance if distance == distance else float("inf")


@contextmanager
def _short_window(decoder: Decoder) -> Iterator[None]:
    """Gives sliding layers a window that is shorter than the proof, so that it is seen whether they heed it as we do.

    A config can name a window that its architecture ignores; short texts would never tell.
    """
    window = getattr(decoder.config, "sliding_window", None)
    if window is None:
        yield
        return
    decoder.config.sliding_window = min(window, SHORT_WINDOW)
    try:
        yield
    finally:
        decoder.config.sliding_window = window


@torch.no_grad()
def prove(decoder: Decoder) -> None:
    """Runs a prefill of 8 tokens and 4 single steps staged and through the model's own cached forward.

    float32 (and wider): max |a − b| ÷ max |b| ≤ 1e-4. Half precision: no larger than twice the distance between the
    model's own cached steps and its own full forward, or one unit of that precision if those two happen to agree.
    A model object that passed is remembered. Raises :class:`UnsupportedModelError` if it fails.
    """
    model = decoder.model
    if model.training:
        raise UnsupportedModelError(
            f"model type {model_type(model)!r} is in training mode, where dropout is random; call model.eval() first"
        )
    if model in _proved:
        return
    with _short_window(decoder):
        _compare(decoder)
    _proved.add(model)


def _compare(decoder: Decoder) -> None:
    """Raises :class:`UnsupportedModelError` if the staged logits are not the model's own."""
    model, length = decoder.model, PREFILL_TOKENS + SINGLE_STEPS
    ids = [(7919 * (index + 1)) % decoder.vocab_size for index in range(length)]
    tensor = torch.tensor([ids], device=decoder.device)
    own = _own_cached(model, tensor)
    allowed = FLOAT32_TOLERANCE
    if decoder.dtype in (torch.bfloat16, torch.float16):
        full = model(input_ids=tensor, use_cache=False).logits[0, PREFILL_TOKENS - 1 :].float()
        allowed = max(2 * _distance(own, full), torch.finfo(decoder.dtype).eps)
    try:
        staged = _staged(decoder, ids)
    except Exception as error:  # layers that want something else may fail in any way
        raise UnsupportedModelError(
            f"model type {model_type(model)!r} is refused: its layers do not run in stages "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'})"
        ) from error
    found = _distance(staged, own)
    if found > allowed:
        raise UnsupportedModelError(
            f"model type {model_type(model)!r} is refused: run in stages, its logits differ from its own forward by "
            f"{found:.1e} (allowed {allowed:.1e}), so the text would not be the model's own"
        )
