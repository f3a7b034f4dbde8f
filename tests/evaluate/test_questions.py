"""The committed questions, and what is said about files that are none."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from spd_lib.evaluate.questions import Question, load_questions, questions_digest


def test_our_own_questions() -> None:
    own, context = load_questions(), load_questions("context")
    assert Counter(question.category for question in own) == dict.fromkeys({q.category for q in own}, 36)
    assert (len(own), len(context)) == (108, 24)
    assert len({question.turns for question in [*own, *context]}) == 132


def written(folder: Path, text: str) -> Path:
    path = folder / "asked.jsonl"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_users_file(tmp_path: Path) -> None:
    """Numbers as names, blank lines, a byte order mark, CRLF, and line breaks that JSON allows inside a text."""
    path = written(
        tmp_path,
        '\ufeff{"question_id": 7, "turns": ["a\u2028b", "c"]}\r\n\n'
        '{"question_id": "x", "turns": ["d"], "category": "maths", "reference": [1]}',
    )
    assert load_questions(str(path)) == [Question("7", ("a\u2028b", "c")), Question("x", ("d",), "maths")]


GOOD = '{"question_id": 1, "turns": ["a"]}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{GOOD}\nnonsense", "line 2: not JSON"),
        ("[1]", "line 1: a question needs question_id and turns"),
        ('{"question_id": 1}', "line 1: a question needs question_id and turns"),
        ('{"question_id": null, "turns": ["a"]}', "line 1: question_id must be a text or a number, got None"),
        (f'{GOOD}\n\n{{"question_id": 2, "turns": []}}', "line 3: turns must be a list of texts, got []"),
        ('{"question_id": 1, "turns": "a"}', "line 1: turns must be a list of texts, got 'a'"),
        ('{"question_id": 1, "turns": [" "]}', "line 1: turns must be a list of texts, got [' ']"),
        ('{"question_id": 1, "turns": ["a"], "category": 3}', "line 1: category must be a text, got 3"),
        (f"{GOOD}\n{GOOD}", "line 2: question_id '1' occurs twice"),
        ("[" * 100_000, "line 1: not JSON"),
        (
            '{"question_id": 1, "turns": ["\\ud800"]}',
            "line 1: a text has half a character (a lone surrogate such as \\ud800)",
        ),
        ('{"question_id": 1, "turns": ["a"], "category": "\\udfff"}', "a lone surrogate such as \\ud800)"),
        ("\n", "has no questions"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ValueError) as caught:
        load_questions(path)
    said = str(caught.value)
    assert said.startswith(str(path)) and said.endswith(message) and "\n" not in said


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot read the questions in .*none.jsonl"):
        load_questions(tmp_path / "none.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b"\xe9")
    with pytest.raises(ValueError, match="cannot read the questions in .*latin.jsonl"):
        load_questions(tmp_path / "latin.jsonl")


def test_the_digest_sees_every_part() -> None:
    question = Question("a", ("b",), "c")
    others = [Question("z", ("b",), "c"), Question("a", ("z",), "c"), Question("a", ("b",), "z")]
    digests = [questions_digest([each]) for each in (question, *others)] + [questions_digest([question, others[0]])]
    assert len(set(digests)) == 5
    assert questions_digest([Question("a", ("b",), "c")]) == digests[0]
