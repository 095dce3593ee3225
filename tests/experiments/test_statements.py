"""Each statement of a paper has a short row: one of five verdicts, a number, and where it is."""

import re
from collections import Counter
from pathlib import Path
from typing import get_args

from experiments.frame import Verdict

ROOT = Path(__file__).parents[2]
STATEMENTS = (ROOT / "docs" / "statements.md").read_text(encoding="utf-8")
FROZEN = (ROOT / "experiments" / "frozen" / "README.md").read_text(encoding="utf-8")
WORDS = 15
"""Words of a cell, at most."""


def statements() -> list[list[str]]:
    """The cells of each statement's row."""
    lines = re.findall(r"^\| (?!statement )(.*) \|$", STATEMENTS, re.MULTILINE)
    return [re.split(r" (?<!\\)\| ", line) for line in lines]


def test_each_statement_has_one_of_five_verdicts_and_the_head_counts_them() -> None:
    assert all(len(row) == 4 for row in statements())
    counts = Counter(verdict for _, verdict, *_ in statements())
    assert counts.keys() <= set(get_args(Verdict))
    said = re.search(r"Of (\d+) rows: (.*?)\.", STATEMENTS.replace("\n", " "))
    assert said and int(said[1]) == counts.total()
    named = (part.partition(" ") for part in said[2].split(", "))
    assert {verdict: int(number) for number, _, verdict in named} == counts


def test_statements_are_short_and_each_says_where() -> None:
    defined = set(re.findall(r"^\[([^]]+)\]: \S+$", STATEMENTS, re.MULTILINE))
    named = set()
    for row in statements():
        assert [cell for cell in row if len(cell.split()) > WORDS] == []
        places = [last or first for first, last in re.findall(r"\[([^]]+)\](?:\[(.*?)\])?", row[3])]
        assert places, row[0]
        named |= set(places)
    assert named == defined


def test_a_frozen_study_that_a_page_leads_to_has_its_row() -> None:
    led = {
        name
        for page in (ROOT / "docs").glob("*.md")
        for name in re.findall(r"frozen/([\w-]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert led and led <= set(re.findall(r"^\| ([\w-]+)[ |]", FROZEN, re.MULTILINE))
