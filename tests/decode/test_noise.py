"""The random numbers: the published generator, the recorded integers, and nothing shared between two uses."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
import torch

from spd_lib.decode import noise

RECORDED = json.loads((Path(__file__).parent / "noise_words.json").read_text())
ONES = 0xFFFFFFFF
KNOWN_ANSWERS = [  # from the Random123 distribution of the authors of Philox
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES, ONES, ONES, ONES), (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_philox_gives_the_published_words(counter, key, words):
    found = noise.philox(tuple(torch.tensor([value]) for value in counter), key)
    assert tuple(int(word) for word in found) == words


@pytest.mark.parametrize("use", RECORDED, ids=lambda use: f"{use['seed']}-{use['row']}-{use['position']}")
def test_recorded_integers(use):
    key = (use["seed"], use["row"], use["position"])
    assert noise.noise_words(*key, len(use["words"]), use["purpose"], "cpu").tolist() == use["words"]


def test_a_token_has_its_noise_whatever_the_vocabulary():
    wide = noise.noise_words(7, 1, 9, 1_000, noise.GUMBEL, "cpu")
    for count in (1, 3, 4, 5, 999):
        assert noise.noise_words(7, 1, 9, count, noise.GUMBEL, "cpu").equal(wide[:count])


def test_uniforms_stay_inside_the_open_interval():
    ends = noise.uniforms(torch.tensor([0, 2**32 - 1]))
    assert 0 < ends[0] < 2**-32 and 1 - 2**-32 < ends[1] < 1
    assert torch.isfinite(-torch.log(-torch.log(ends)).float()).all()
    drawn = noise.uniforms(noise.noise_words(0, 0, 0, 100_000, noise.GUMBEL, "cpu"))
    assert abs(drawn.mean() - 0.5) < 4 / (12 * 100_000) ** 0.5 and abs(drawn.var() - 1 / 12) < 1e-3


def test_no_two_uses_share_a_number():
    # A seed's upper half, a row, a position and a purpose each change every word.
    uses = list(product((0, 1, 2**32, 2**63 + 5), range(3), range(3), range(4)))
    words = torch.cat([noise.noise_words(s, row, at, 64, purpose, "cpu") for s, row, at, purpose in uses])
    # 9,216 words of 32 bits: 0.01 pairs agree by chance. Any sharing would make at least 64 of them agree.
    assert len(words) - len(words.unique()) < 3


def test_gumbel_noise_has_gumbel_moments():
    values = noise.gumbel(3, 0, 5, 200_000, "cpu").double()
    assert abs(float(values.mean()) - 0.5772157) < 4 * (1.6449 / 200_000) ** 0.5
    assert abs(float(values.var()) - 1.6449341) < 0.03
