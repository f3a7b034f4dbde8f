"""Compares the drafter of `make train SCALE=small` with the committed figures, or writes them with --save."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from spd_lib.evaluate.report import provenance, save

ROOT = Path(__file__).resolve().parents[1]
COMMAND = "make train SCALE=small"
LOG = ROOT / "_build/small-drafter/log.jsonl"
RESULT = ROOT / "results/train-small.json"
LOSS_TOLERANCE = 0.02  # relative
ACCEPTANCE_TOLERANCE = 0.02

Figures = dict[str, float]


def figures(log: Path) -> Figures:
    """Loss and held-out acceptance at the end of a run."""
    last = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
    acceptance = {name: entry["acceptance"] for name, entry in last.items() if name.startswith("n=")}
    return {"loss": last["loss"], **acceptance}


def result(found: Figures) -> dict[str, Any]:
    """What is committed: the figures and where they come from."""
    return provenance(COMMAND) | {"figures": found}


def off(found: Figures, committed: Figures) -> set[str]:
    """The figures that are not within tolerance of the committed ones, or that only one of the two has."""
    wrong = set(found) ^ set(committed)
    for name in set(found) & set(committed):
        tolerance = LOSS_TOLERANCE * committed[name] if name == "loss" else ACCEPTANCE_TOLERANCE
        if not abs(found[name] - committed[name]) <= tolerance:
            wrong.add(name)
    return wrong


def main() -> int:
    """Returns 1 if a figure is off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="make this run the committed one")
    arguments = parser.parse_args()
    if not LOG.exists():
        print(f"There is no {LOG.relative_to(ROOT)} yet: {COMMAND}")
        return 1
    found = figures(LOG)
    if arguments.save:
        save(result(found), RESULT)
    if not RESULT.exists():
        print(f"There are no committed figures yet: python {Path(__file__).relative_to(ROOT)} --save")
        return 1
    committed = json.loads(RESULT.read_text(encoding="utf-8"))["figures"]
    wrong = off(found, committed)
    for name in sorted(set(found) | set(committed), key=lambda name: (name != "loss", len(name), name)):
        values = f"{found.get(name, float('nan')):.4f}, committed {committed.get(name, float('nan')):.4f}"
        print(f"{name:6} {values}: {'NOT within tolerance' if name in wrong else 'fine'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
