"""Tables of acceptance: what is counted, over what, and how sure it is."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from spd_lib.evaluate.acceptance import acceptance_table, estimate, fit, interval, plans_for
from spd_lib.evaluate.replay import Judged
from spd_lib.evaluate.report import readable, save
from spd_lib.evaluate.texts import Text
from spd_lib.target.fingerprint import weights_digest
from spd_lib.target.layers import Decoder
from spd_lib.target.load import Target
from tests.draft.modules import tiny_module
from tests.families import tiny
from tests.train.chat import tokenizer

from .learnt import GREEDY, LAYERS, SAMPLED, half_right, model, plan, replay, texts


@cache
def target() -> Target:
    return Target(model(), tokenizer(), "tiny")


def asked() -> list[Text]:
    """Two categories; the last answer is one that repeats itself."""
    some = [replace(text, category="ab"[text.row % 2]) for text in texts(GREEDY)[:5]]
    loop = texts(GREEDY)[5]
    return [*some, replace(loop, category="b", new_ids=loop.new_ids[:14] * 2)]


@cache
def table() -> dict[str, Any]:
    return acceptance_table(target(), half_right(), asked(), (2, 4), GREEDY)


def rate(judged: list[Judged]) -> float:
    return sum(each.accepted for each in judged) / len(judged)


def by_hand(num_stages: int, counted: bool = True) -> list[tuple[Text, Judged]]:
    judged = ((text, each) for text in asked() for each in replay(text, GREEDY).judged(plan(num_stages)))
    return [(text, each) for text, each in judged if not counted or each.index < text.counted]


@pytest.mark.parametrize(("row", "num_stages"), [(0, 2), (1, 4)])
def test_the_numbers_by_hand(row: int, num_stages: int) -> None:
    found = table()["stages"][row]
    everything = by_hand(num_stages)
    assert found["n"] == num_stages
    assert (found["acceptance"], found["judged"]) == (rate([each for _, each in everything]), len(everything))
    assert found["raw"] == rate([each for _, each in by_hand(num_stages, counted=False)]) != found["acceptance"]
    for name in "ab":
        some = [each for text, each in everything if text.category == name]
        assert found["by_category"][name]["acceptance"] == rate(some)
        assert found["by_category"][name]["judged"] == len(some)
    assert list(found["by_fill"]) == list(found["agreement"]) == [str(fill) for fill in range(1, num_stages + 1)]
    for fill in range(1, num_stages + 1):
        some = [each for _, each in everything if each.fill == fill]
        assert (found["by_fill"][str(fill)]["acceptance"], found["by_fill"][str(fill)]["judged"]) == (
            rate(some),
            len(some),
        )
    low, high = found["interval"]
    assert low < found["acceptance"] < high


def test_the_headline_leaves_the_loop_out() -> None:
    loop = asked()[-1]
    assert (len(loop.new_ids), loop.counted) == (28, 14)
    assert table()["counted_tokens"] == table()["new_tokens"] - 14


def test_the_ceiling_is_what_the_drafter_has_words_for() -> None:
    known = set(half_right().draft_ids.tolist())
    tokens = [token for text in asked() for token in text.new_ids[1 : text.counted]]
    assert table()["ceiling"] == sum(token in known for token in tokens) / len(tokens) < 1
    assert all(row["acceptance"] <= table()["ceiling"] for row in table()["stages"])


def test_rejection_accepts_most() -> None:
    gumbel, rejection = (
        acceptance_table(target(), half_right(), texts(SAMPLED), (3,), SAMPLED, coupling=coupling)["stages"][0]
        for coupling in ("gumbel", "rejection")
    )
    assert rejection["agreement"]["1"] != gumbel["agreement"]["1"]
    assert rejection["near_ties"] == 0


def test_nothing_judged_is_no_number() -> None:
    short = replace(texts(GREEDY)[0], new_ids=texts(GREEDY)[0].new_ids[:1])
    found = acceptance_table(target(), half_right(), [short], (3,), GREEDY)
    assert found["stages"][0]["acceptance"] is found["stages"][0]["interval"] is found["ceiling"] is None
    assert "–" in readable(found)


def test_the_interval_of_a_known_case() -> None:
    """A hundred equal texts, each right or wrong as a whole: the interval is that of a binomial share."""
    counts = [(10 * (index < 30), 10) for index in range(100)]
    low, high = interval(counts) or (0, 0)
    spread = 1.96 * (0.3 * 0.7 / 100) ** 0.5
    assert low == pytest.approx(0.3 - spread, abs=0.015)
    assert high == pytest.approx(0.3 + spread, abs=0.015)
    assert interval(counts) == (low, high)
    inner = interval(counts, level=0.5) or (0, 0)
    assert low < inner[0] < 0.3 < inner[1] < high


def test_an_interval_resamples_texts_not_tokens() -> None:
    """The same flags: spread over all texts they are nearly certain, bunched in some they are not."""
    bunched = [(100, 100)] * 10 + [(0, 100)] * 10
    even = [(50, 100)] * 20
    low, high = interval(bunched) or (0, 0)
    assert high - low > 0.3
    assert interval(even) == (0.5, 0.5)
    uneven = [(index, 20 + 7 * index % 13) for index in range(20)]
    assert interval(uneven) == interval(uneven) != interval(uneven, seed=1), "the dice are fixed"


def test_intervals_cover() -> None:
    """Of many intervals from a law with known share, nearly all hold it."""
    dice, held = random.Random(0), 0
    for _ in range(200):
        shares = [dice.random() for _ in range(40)]  # a text of its own difficulty: mean 1/2
        counts = [(sum(dice.random() < share for _ in range(20)), 20) for share in shares]
        low, high = interval(counts) or (0, 0)
        held += low <= 0.5 <= high
    assert 180 <= held <= 199


def test_texts_without_a_judged_draft_do_not_disturb() -> None:
    assert estimate([(0, 0), (0, 0)]) == {"acceptance": None, "interval": None, "judged": 0}
    assert estimate([(3, 3), (0, 0)]) == {"acceptance": 1.0, "interval": (1.0, 1.0), "judged": 3}


def test_a_foreign_module_is_refused() -> None:
    foreign = tiny_module(Decoder(tiny("llama")))
    with pytest.raises(ValueError, match="the drafter was trained for tiny"):
        fit(foreign, target())
    with pytest.raises(ValueError, match=f"between 1 and the model's {LAYERS} layers, got 9"):
        plans_for(Decoder(model()), (2, 9), "even")


def test_the_digest_of_weights() -> None:
    module = tiny_module(Decoder(model()))
    digest = weights_digest(module)
    assert weights_digest(module.to(torch.bfloat16)) == digest
    module.draft_ids[[0, 1]] = module.draft_ids[[1, 0]]
    assert weights_digest(module) != digest


def test_the_table_is_readable() -> None:
    lines = readable(table()).splitlines()
    assert lines[0].split() == ["n", "accepted", "95", "%", "interval", "raw", "full", "pipe", "a", "b"]
    by_category, by_fill = lines[2].split(), lines[7].split()
    assert by_category[0] == by_fill[0] == "4" and len(by_fill) == 5
    found = table()["stages"][1]
    assert by_category[1] == f"{found['acceptance']:.3f}" and by_category[-1] == (
        f"{found['by_category']['b']['acceptance']:.3f}"
    )
    assert by_fill[1] == f"{found['by_fill']['1']['acceptance']:.3f}"
    assert lines[3].strip().startswith("prompt lookup")
    assert max(map(len, lines[:-1])) <= 120
    assert lines[-1].startswith("6 answers, 154 of 168 tokens before a repeated 12-gram")


def test_a_saved_table_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "table.json"
    save(table(), path)
    assert json.loads(path.read_text()) == json.loads(json.dumps(table()))
    assert [entry.name for entry in path.parent.iterdir()] == ["table.json"]
