"""The running example: one prompt, one seed, n = 4, from the first picture of the book to the last chapter.

Its Trace is committed as data, so that a page can show it without running a model; ``python -m spd_lib.show.example``
records it anew, and a test compares the two.
"""

from __future__ import annotations

from pathlib import Path

from spd_lib.core.trace import Trace

from .assets import asset

PROMPT = (
    "Summarize: A pipe with four stages keeps four tokens in flight, one token in each stage. "
    "Every cycle each token moves one stage."
)
NUM_STAGES = 4
MAX_NEW_TOKENS = 24
DRAFTER = "prompt-lookup"
SEED = 0
FILE = "running_example.json"


def running_example() -> Trace:
    """The recorded Trace: SmolLM2-135M-Instruct in float32, greedy, with the tokens' texts."""
    return Trace.from_json(asset(FILE))


def record() -> Trace:
    """Decodes the running example on this machine; needs the target SmolLM2."""
    from spd_lib.decode import GenerateOutput, generate
    from spd_lib.target.load import encode_chat, load

    target = load("smollm2", device="cpu", dtype="float32")
    output = generate(
        target.model,
        encode_chat(target, PROMPT),
        drafter=DRAFTER,
        num_stages=NUM_STAGES,
        max_new_tokens=MAX_NEW_TOKENS,
        seed=SEED,
        return_dict_in_generate=True,
    )
    assert isinstance(output, GenerateOutput) and output.traces
    trace = output.traces[0]
    trace.notes["model"] = "SmolLM2-135M-Instruct"
    return trace.with_texts(target.tokenizer.decode)


if __name__ == "__main__":
    (Path(__file__).parent / "assets" / FILE).write_text(record().to_json() + "\n", encoding="utf-8")
