"""Questions to evaluate with: our own, or a user's file with one a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("prompts")
NAMED = ("own", "context")


@dataclass(frozen=True)
class Question:
    """What a user says; ``turns``: one text or more, of which the first is asked."""

    question_id: str
    turns: tuple[str, ...]
    category: str = "all"


def load_questions(name: str | Path = "own") -> list[Question]:
    """The questions named "own" or "context", or those of a JSONL file with ``question_id``, ``turns``, ``category``.

    Raises ``ValueError`` in one line naming file, line and what is wrong there.
    """
    path = FOLDER / f"{name}.jsonl" if name in NAMED else Path(name).expanduser()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the questions in {path}: {error}") from error
    found = [_question(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1) if line.strip()]
    if not found:
        raise ValueError(f"{path} has no questions")
    names = [question.question_id for question in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{path}: question_id {twice!r} occurs twice")
    return found


def _question(line: str, place: str) -> Question:
    try:
        record = json.loads(line)
    except ValueError:
        raise ValueError(f"{place}: not JSON") from None
    if not isinstance(record, dict) or "question_id" not in record or "turns" not in record:
        raise ValueError(f"{place}: a question needs question_id and turns")
    turns = record["turns"]
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise ValueError(f"{place}: turns must be a list of texts, got {turns!r}")
    return Question(str(record["question_id"]), tuple(turns), str(record.get("category", "all")))
