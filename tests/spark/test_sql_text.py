"""The user's text does not get into SQL unguarded: type checkers see to that."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import trinitymerge
from trinitymerge.spark.sql_text import as_sql

PREAMBLE = """
from trinitymerge.schema.definition import Field
from trinitymerge.spark.expressions import all_of, any_of, case, not_, opaque, over, quote
from trinitymerge.spark.casts import cast_to_column
from trinitymerge.spark.sql_text import as_sql
from trinitymerge.merge.analysis.row_kinds import Expression
from trinitymerge.merge.compile.program import by_slot
from trinitymerge.merge.compile.steps import Select


def build(text: str, given: Expression, field: Field) -> None:
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
    "cast_to_column(text, given.way, field)",
    "Select.adding({'a': text})",
    "Select.adding({'a': given.value})",
    "Select.adding({}, where=text)",
    "opaque(f'{as_sql(text)} + 1')",
]


GUARDED = [re.sub(r"\b(given\.value|text)\b", "as_sql(text)", call) for call in UNGUARDED[:-1]]


@pytest.mark.slow
def test_raw_text_is_a_type_error_wherever_SQL_is_built_and_guarded_text_is_none(tmp_path):
    api = pytest.importorskip("mypy.api")
    lines = [*PREAMBLE.splitlines(), *(f"    {call}" for call in [*UNGUARDED, *GUARDED])]
    module = tmp_path / "snippets.py"
    module.write_text("\n".join(lines), "utf-8")
    shown, _, _ = api.run([str(module), "--no-error-summary"])
    found = {lines[int(n) - 1].strip() for n in re.findall(r"snippets\.py:(\d+): error: ", shown)}
    assert found == set(UNGUARDED), shown


GUARDS = {"as_sql", "quote", "text_literal"}
"""What makes SQL of a plain ``str``."""

GUARDS_OF_DIALECTS = {"quoted", "text", "_atomic"}
"""The same for other engines: names and text in their quotes, and types that are in a table or match a pattern."""

CLAIMS = """
def guard(text: str) -> Sql:
    return Sql(f"f({text})")

def build(row: Given, name: Sql) -> Sql:
    return any_of([Sql(f"{name} > 1"), Sql(f"f({as_sql(row.value)})"), Sql(f"f({row.value})")])
"""


def wrong_claims(code):
    """The functions that say ``Sql(...)`` of a parameter that is plain text, or of a user's expression."""
    for function in (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)):
        arguments = [*function.args.args, *function.args.kwonlyargs]
        plain = {a.arg for a in arguments if a.annotation is not None and ast.unparse(a.annotation) == "str"}
        for call in (
            node for node in ast.walk(function) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Sql"
        ):
            names = {node.id for node in unguarded(call) if isinstance(node, ast.Name)}
            attributes = {node.attr for node in unguarded(call) if isinstance(node, ast.Attribute)}
            if names & plain or attributes & {"value", "alone", "condition"}:
                yield function.name


def unguarded(node):
    """The parts of an expression that do not stand in a call of a guard."""
    if not (isinstance(node, ast.Call) and ast.unparse(node.func).removeprefix("E.") in GUARDS):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from unguarded(child)


def test_nobody_else_claims_that_plain_text_is_SQL():
    assert list(wrong_claims(CLAIMS)) == ["guard", "build"]
    package = Path(trinitymerge.__file__).parent
    assert {
        name for path in package.rglob("*.py") for name in wrong_claims(path.read_text("utf-8"))
    } == GUARDS | GUARDS_OF_DIALECTS


def test_guarded_text_cannot_comment_out_what_follows():
    assert as_sql("a -- b") == "(a -- b\n)"
