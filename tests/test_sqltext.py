"""The user's text does not get into SQL unguarded: type checkers see to that."""

from __future__ import annotations

import re

import pytest

from trinitymerge.merge.analysis.frames import as_sql

PREAMBLE = """
from trinitymerge.definition import Field
from trinitymerge.expressions import all_of, any_of, case, not_, opaque, over, quote
from trinitymerge.merge.analysis.assignment import stored
from trinitymerge.merge.analysis.frames import as_sql
from trinitymerge.merge.analysis.values import Given
from trinitymerge.merge.compile.program import by_slot
from trinitymerge.merge.compile.steps import Select


def build(text: str, given: Given, field: Field) -> None:
"""
UNGUARDED = [
    "all_of([text])",
    "any_of([quote('a'), text])",
    "not_(text)",
    "case([(text, quote('a'))])",
    "case([(quote('a'), quote('b'))], text)",
    "over(text, [])",
    "opaque(text)",
    "by_slot({0: text})",
    "stored(text, given.way, field)",
    "Select.adding({'a': text})",
    "Select.adding({'a': given.value})",
    "Select.adding({}, where=text)",
    "opaque(f'{as_sql(text)} + 1')",
]


GUARDED = [re.sub(r"\b(given\.value|text)\b", "as_sql(text)", call) for call in UNGUARDED[:-1]]


def test_raw_text_is_a_type_error_wherever_SQL_is_built_and_guarded_text_is_none(tmp_path):
    api = pytest.importorskip("mypy.api")
    lines = [*PREAMBLE.splitlines(), *(f"    {call}" for call in [*UNGUARDED, *GUARDED])]
    module = tmp_path / "snippets.py"
    module.write_text("\n".join(lines), "utf-8")
    shown, _, _ = api.run([str(module), "--no-error-summary", "--cache-dir", str(tmp_path / "cache")])
    found = {lines[int(n) - 1].strip() for n in re.findall(r"snippets\.py:(\d+): error: ", shown)}
    assert found == set(UNGUARDED), shown


def test_guarded_text_cannot_comment_out_what_follows():
    assert as_sql("a -- b") == "(a -- b\n)"
