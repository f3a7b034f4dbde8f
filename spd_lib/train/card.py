"""The model card of a trained drafter, written from the run itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..draft.config import DraftConfig


def model_card(
    config: DraftConfig, run: Mapping[str, Any], check: Mapping[str, Any], curve: Sequence[Mapping[str, Any]]
) -> str:
    """Markdown: what it is for, what it learnt from, how well it drafts the held-out texts, how to use it.

    ``run``: facts of the run by name, printed as they are. ``check``: the last check of the trainer, by "n=…".
    ``curve``: the entries of its log.
    """
    facts = "\n".join(f"* {name}: {value}" for name, value in run.items())
    return f"""# Pipeline Draft Module for {config.target}

A drafter for Speculative Pipeline Decoding of `{config.target}`: it reads the target's hidden states after
{", ".join(map(str, config.anchors))} layers and predicts the next token while the stages run. One set of weights serves
every number of stages and every plan. It drafts {config.draft_vocab_size:,} of the {config.vocab_size:,} ids and looks
back {config.window} tokens.

    python -m spd_lib generate "Why is the sky blue?" --target {config.target} --drafter FOLDER

## The run

{facts}

## Held-out texts

Share of positions in held-out answers where the draft is the target's greedy choice (teacher-forced, even plan), by
tokens in flight, and the acceptance that follows for a long run. Acceptance on real prompts is measured by
`python -m spd_lib acceptance`.

{_held_out(check)}

{_curve(curve)}
"""


def _held_out(check: Mapping[str, Any]) -> str:
    fills = sorted({int(fill) for entry in check.values() for fill in entry["agreement"]})
    lines = ["| n | " + " | ".join(f"fill {fill}" for fill in fills) + " | acceptance |"]
    lines.append("|---" * (len(fills) + 2) + "|")
    for name, entry in check.items():
        shares = [entry["agreement"].get(str(fill)) for fill in fills]
        cells = ["" if share is None else f"{share:.3f}" for share in shares]
        lines.append(f"| {name.removeprefix('n=')} | " + " | ".join(cells) + f" | {entry['acceptance']:.3f} |")
    return "\n".join(lines)


def _curve(curve: Sequence[Mapping[str, Any]]) -> str:
    names = [name for name in curve[-1] if name.startswith("n=")] if curve else []
    lines = ["| tokens read | loss | " + " | ".join(f"acceptance, {name}" for name in names) + " |"]
    lines.append("|---" * (len(names) + 2) + "|")
    for entry in curve:
        cells = [f"{entry[name]['acceptance']:.3f}" for name in names if name in entry]
        lines.append(f"| {entry['tokens']:,} | {entry['loss']:.3f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
