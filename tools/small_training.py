"""Compares the drafter of `make train SCALE=small` with the committed figures, or writes them with --save."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from pathlib import Path

import torch

from spd_lib.target.load import device_name, versions

ROOT = Path(__file__).parents[1]
LOG = ROOT / "_build/small-drafter/log.jsonl"
RESULT = ROOT / "results/train-small.json"
LOSS_TOLERANCE = 0.02  # relative
ACCEPTANCE_TOLERANCE = 0.02


def figures() -> dict[str, float]:
    """Loss and held-out acceptance at the end of the run."""
    last = json.loads(LOG.read_text(encoding="utf-8").splitlines()[-1])
    acceptance = {name: entry["acceptance"] for name, entry in last.items() if name.startswith("n=")}
    return {"loss": last["loss"], **acceptance}


def main() -> int:
    """Returns 1 if a figure is off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="make this run the committed one")
    found = figures()
    if parser.parse_args().save:
        machine = {"cpu": device_name(torch.device("cpu")), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
        today = datetime.date.today().isoformat()
        facts = {"command": "make train SCALE=small", "date": today, "machine": machine, "versions": versions()}
        RESULT.write_text(json.dumps(facts | {"figures": found}, indent=1) + "\n", encoding="utf-8")
    committed = json.loads(RESULT.read_text(encoding="utf-8"))["figures"]
    wrong = 0
    for name, value in found.items():
        relative = name == "loss"
        off = abs(value - committed[name]) / (committed[name] if relative else 1)
        fine = off <= (LOSS_TOLERANCE if relative else ACCEPTANCE_TOLERANCE)
        wrong += not fine
        print(f"{name:6} {value:.4f}, committed {committed[name]:.4f}: {'fine' if fine else 'NOT within tolerance'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
