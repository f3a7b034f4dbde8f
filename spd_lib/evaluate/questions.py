"""Questions to evaluate with: our own, or a user's file with one a line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("prompts")
NAMED = ("own", "context")
HALF_A_CHARACTER = "a text has half a character (a lone surrogate such as \\ud800)"


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
        # Not splitlines(): JSON texts may hold other line breaks, such as U+2028, as they are.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the questions in {path}: {error}") from error
    found: dict[str, Question] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            question = _question(line, f"{path}, line {number}")
            if question.question_id in found:
                raise ValueError(f"{path}, line {number}: question_id {question.question_id!r} occurs twice")
            found[question.question_id] = question
    if not found:
        raise ValueError(f"{path} has no questions")
    return list(found.values())


def _question(line: str, place: str) -> Question:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError(f"{place}: not JSON") from None
    if not isinstance(record, dict) or "question_id" not in record or "turns" not in record:
        raise ValueError(f"{place}: a question needs question_id and turns")
    name, turns, category = record["question_id"], record["turns"], record.get("category", "all")
    if not isinstance(name, (str, int)):
        raise ValueError(f"{place}: question_id must be a text or a number, got {name!r}")
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise ValueError(f"{place}: turns must be a list of texts, got {turns!r}")
    if not isinstance(category, str):
        raise ValueError(f"{place}: category must be a text, got {category!r}")
    if not all(is_text(text) for text in (*turns, str(name), category)):
        raise ValueError(f"{place}: {HALF_A_CHARACTER}")
    return Question(str(name), tuple(turns), category)


def is_text(text: str) -> bool:
    """JSON can spell strings that no file can hold and no tokenizer read."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def questions_digest(questions: Sequence[Question]) -> str:
    """Names the questions: sixteen hex digits of the sha256 of all that is in them."""
    text = json.dumps([asdict(question) for question in questions])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
