"""Acceptance in long chats, ``python -m tests.bench.context``: the questions named "context", each after earlier turns.

Every length is replayed twice on the same answers: with the window that the drafter was trained with, and with every
row in its sight, which it was never trained for. An interrupted run goes on after the last length saved, on
another machine too: every length names its own.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from spd_lib.draft.module import PipelineDraftModule
from spd_lib.draft.pretrained import shipped_module
from spd_lib.evaluate.acceptance import acceptance_table, looking_back
from spd_lib.evaluate.questions import load_questions, questions_digest
from spd_lib.evaluate.texts import Sampling, Text, write_texts
from spd_lib.target.fingerprint import weights_digest
from spd_lib.target.load import Target, load
from spd_lib.train.history import earlier_turns

from ..results import provenance, save

HISTORIES = (128, 512, 1024, 2048, 4096)  # tokens of earlier turns
NEW_TOKENS = 64
STAGES = (4,)


def rows(target: Target, module: PipelineDraftModule, texts: list[Text]) -> dict[str, Any]:
    """Acceptance by n, as trained and with every row in sight."""
    longest = max(len(text.prompt_ids) + len(text.new_ids) for text in texts)
    windows = {"trained window": module.config.window, "every row": longest}
    found: dict[str, Any] = {"prompt_tokens": sum(len(text.prompt_ids) for text in texts) / len(texts)}
    for name, window in windows.items():
        table = acceptance_table(target, looking_back(module, window), texts, STAGES, Sampling())
        found[name] = {str(row["n"]): {key: row[key] for key in ("acceptance", "interval")} for row in table["stages"]}
    return found


def main(argv: list[str] | None = None) -> int:
    """Measures the lengths that are missing and saves after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/context-smollm2-cpu.json"))
    out = parser.parse_args(argv).out
    torch.set_num_threads(1)
    target, module = load("smollm2", device="cpu", dtype="float32"), shipped_module()
    questions = load_questions("context")
    settings = {
        "drafter": weights_digest(module),
        "window": module.config.window,
        "new_tokens": NEW_TOKENS,
        "stages": list(STAGES),
        "questions_digest": questions_digest(questions),
    }
    module, writer = module.float(), load("smollm2", device="cpu", dtype="bfloat16")
    old = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    done = old["histories"] if all(old.get(key) == value for key, value in settings.items()) else []
    for history in HISTORIES:
        if history in [row["history"] for row in done]:
            continue
        earlier = earlier_turns(writer, len(questions), history)
        texts = write_texts(target, questions, Sampling(), NEW_TOKENS, earlier)
        told = provenance("python -m tests.bench.context")
        measured = {key: told[key] for key in ("date", "machine")}
        done.append({"history": history, **measured, **rows(target, module, texts)})
        save(told | settings | {"histories": done}, out)
        print(done[-1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
