"""A tiny target, the texts that it writes, and a small drafter that has learnt them half by heart."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
import transformers

from spd_lib.baselines import autoregressive
from spd_lib.core.plan import Plan, make_plan
from spd_lib.core.staircase import row_kinds
from spd_lib.core.trace import Trace
from spd_lib.decode.engine import decode
from spd_lib.decode.sampling import Sampler
from spd_lib.decode.stopping import StopRule
from spd_lib.draft import Drafter
from spd_lib.draft.module import PipelineDraftModule
from spd_lib.draft.pipeline_drafter import PipelineDrafter
from spd_lib.evaluate.replay import Replay
from spd_lib.evaluate.texts import Sampling, Text
from spd_lib.target.layers import Decoder
from spd_lib.target.pipeline import Pipeline
from tests.draft.modules import tiny_module
from tests.families import SHAPE, VOCAB, prompt_of

CPU = torch.device("cpu")
LAYERS, NEW_TOKENS, STAGES = 8, 28, (1, 2, 3, 4, 8)
GREEDY, SAMPLED = Sampling(), Sampling(1.0, seed=5)


@cache
def model() -> torch.nn.Module:
    """Just deep enough for eight stages."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        config = transformers.LlamaConfig(**SHAPE, num_hidden_layers=LAYERS)
        return transformers.LlamaForCausalLM(config).float().eval().requires_grad_(False)


def plan(num_stages: int) -> Plan:
    return make_plan("even", LAYERS, num_stages, 0.0)


def write(row: int, sampling: Sampling, eos: tuple[int, ...] = (), budget: int = NEW_TOKENS) -> Text:
    """The model's answer to prompt number ``row``."""
    prompt = prompt_of(4 + row, row)
    trace = autoregressive(Pipeline(model(), 1), sampling.sampler(row, VOCAB, CPU), prompt, budget, eos)
    return Text(f"q{row}", "all", row, tuple(prompt), tuple(trace.token_ids), budget, trace.stop_reason)


@cache
def texts(sampling: Sampling) -> list[Text]:
    return [write(row, sampling) for row in range(8)]


@cache
def half_right() -> PipelineDraftModule:
    """Often right and often wrong at every fill, in greedy and in sampled texts: it has seen a part of each."""
    decoder = Decoder(model())
    module = tiny_module(decoder, anchors=(0, 1, 3, 5, 8), draft_vocab_size=VOCAB - 7)
    optimizer = torch.optim.Adam(module.parameters(), lr=5e-3)
    column = torch.full((VOCAB,), -100)
    column[module.draft_ids] = torch.arange(len(module.draft_ids))
    lessons = []
    for text in texts(GREEDY) + texts(SAMPLED):
        ids = torch.tensor([[*text.prompt_ids, *text.new_ids]])
        lessons.append((decoder.read(ids, module.config.anchors), column[ids[0, 1:]]))
    for step in range(200):
        states, wanted = lessons[step % len(lessons)]
        cut = plan(STAGES[step % 5])
        logits = module(states, row_kinds(cut, module.config.anchors, 1 + step % cut.num_stages))[:-1]
        F.cross_entropy(logits, wanted).backward()
        optimizer.step()
        optimizer.zero_grad()
    return module.requires_grad_(False)


def engine(text: Text, num_stages: int, sampler: Sampler, eos: tuple[int, ...] = (), drafter: Drafter | None = None):
    """The real run over the prompt of ``text``."""
    stop = StopRule(len(text.prompt_ids), text.budget, eos)
    drafter = drafter or PipelineDrafter(half_right())
    return decode(Pipeline(model(), num_stages), drafter, sampler, stop, list(text.prompt_ids))


def replay(text: Text, sampling: Sampling, coupling: str = "gumbel", module: PipelineDraftModule | None = None):
    return Replay(Decoder(model()), module or half_right(), text, sampling, coupling)


def verdicts(trace: Trace) -> list[bool]:
    """Whether each judged draft was right, in order."""
    return [verdict.accepted for cycle in trace.cycles for verdict in cycle.verdicts]


def fills(trace: Trace) -> list[int]:
    """How many tokens were in flight when each judged draft was made: those that stood in a stage in that cycle."""
    made_in = [trace.tokens[verdict.judged].drafted_in for cycle in trace.cycles for verdict in cycle.verdicts]
    return [sum(map(len, trace.cycles[index].stages)) for index in made_in]
