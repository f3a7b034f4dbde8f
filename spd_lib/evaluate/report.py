"""A result for people, for files, and what it says about where it comes from."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from ..files import whole_file
from ..target.load import device_name, versions


def provenance(command: str, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Command, date, machine and versions of a result that is made now."""
    machine = {"device": device_name(torch.device(device)), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    today = datetime.date.today().isoformat()
    return {"command": command, "date": today, "machine": machine, "versions": versions()}


def save(result: dict[str, Any], path: Path) -> None:
    """Writes ``result`` as JSON, each item of its lists on one line; whole or not at all."""
    lists = {key: value for key, value in result.items() if isinstance(value, list)}
    text = json.dumps({**result, **{key: f"@{key}" for key in lists}}, indent=1, ensure_ascii=False)
    for key, items in lists.items():
        rows = ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in items)
        text = text.replace(f'"@{key}"', f"[\n  {rows}\n ]" if items else "[]")
    with whole_file(path) as place:
        place.write_text(text + "\n", encoding="utf-8")


def readable(result: dict[str, Any]) -> str:
    """An acceptance table for people: by n and category, then by n and fill."""
    return "\n".join([*_by_category(result), "", *_by_fill(result["stages"]), "", _basis(result)])


def _by_category(result: dict[str, Any]) -> Iterable[str]:
    names = list(result["prompt_lookup"]["by_category"])
    yield f"{'n':>13}  accepted  95 % interval     raw  full pipe" + "".join(f"  {name:>12}" for name in names)
    rows = [(str(row["n"]), row, row["agreement"][str(row["n"])]) for row in result["stages"]]
    for name, row, full in [*rows, ("prompt lookup", result["prompt_lookup"], None)]:
        low, high = row["interval"] or (None, None)
        cells = "".join(f"  {_number(row['by_category'][each]['acceptance']):>12}" for each in names)
        share = f"{_number(row['acceptance']):>8}  {_number(low):>5} … {_number(high):>5}"
        yield f"{name:>13}  {share}  {_number(row['raw']):>6}  {_number(full):>9}{cells}"


def _by_fill(rows: list[dict[str, Any]]) -> Iterable[str]:
    fills = range(1, max(row["n"] for row in rows) + 1)
    yield f"{'n  at fill':>13}" + "".join(f"{fill:>6}" for fill in fills)
    for row in rows:
        cells = "".join(f"{_number(each['acceptance']):>6}" for each in row["by_fill"].values())
        yield f"{row['n']:>13}{cells}"


def _basis(result: dict[str, Any]) -> str:
    judged = ", ".join(f"{row['n']}: {row['near_ties']}" for row in result["stages"])
    return (
        f"{result['texts']} answers, {result['counted_tokens']} of {result['new_tokens']} tokens before a repeated "
        f"12-gram; the drafter can draft {_number(result['ceiling'])} of them. Full pipe: agreement, not acceptance. "
        f"Near-ties by n: {judged}."
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
