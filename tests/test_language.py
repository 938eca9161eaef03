"""The language of pages and of the package: phrases to avoid, long sentences, and names that no longer exist.

A phrase is reported as ``file:line: phrase``. To check another folder of the package, append it to ``FOLDERS_DONE``.
"""

from __future__ import annotations

import ast
import re
import token
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "trinitymerge"
PAGES = [ROOT / "README.md", ROOT / "tests" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

PAGES_LEFT: list[str] = []
"""Pages that are not clean yet. Remove a page here when it is."""


PHRASES = {
    r"\bst(?:ands?|ood)\s+in\b": "is in, contains, see",
    r"\b(?:is|are|was|were|be|been)\s+told\b": "gets, knows, is reported",
    r"\btells?\b(?!\s+apart)": "reports, says, shows",
    r"\bof\s+(?:its|their|his|our|your|one's)\s+own\b": "separate, its",
    r"\bbe\s+it\b": "even if",
    r"\blikewise\b": "also, in the same way",
    r"\bbesides\b": "also, in addition",
    r"\banew\b": "again",
    r"\bmeanwhile\b": "concurrently",
    r"\bthat\s+there\s+(?:is|are)\b": "name the subject",
    r"(?<!there\s)\b(?:is|are|was|were)\s+no\s+(?!longer\b|more\b|less\b|\w+er\b)": "is not a",
    r"\b(?:nobody|somebody|whoever|whatever)\b": "name the actor",
    r",\s+for\s+(?:it|they|there|nothing|none|we|you)\b": "because",
    r"\bof\s+Iceberg's\b": "Iceberg tables",
}
"""Phrases to avoid, and what to write instead."""

OPENING = re.compile(r"(?:\A\s*|[.:!?]\s+|\n\s*\n\s*|^\s*[-*] )(What|That|Whoever)\s", re.MULTILINE)
"""A sentence does not begin with these."""

WORDS_OF_OURS = {
    r"\bfold(?:s|ed|ing)?\b": "minor compaction",
    r"\bow(?:e|es|ed|ing)\b": "pending",
    r"\b(?:loose|settled)\s+archives?\b": "unresolved, resolved archive",
}
"""Words that pages replace by the field's."""

LONGEST = 25
"""Words in a sentence of a page, names in code and rule numbers counted as one or none."""

OLD_NAMES = """
    IcebergBackend ManagedBackend
    PurgedKeys UnknownActionError foretold is_told may_arrive owed_rows rows_with_owed stands_beside without_purged
    without_unchanged ignorableBy tombstonesSince _on_path
    ALL_COLUMNS ANSWERED ASKED_BATCHES ASKS_ITS_LOG BaseAndDeltas BlindAppend CopiedTable FEW_ROWS FORGET_NOTHING FedTable
    KeyedLookup KeptRanges LITERAL_NAMES MADE_BY MOST_ROWS Materialised NamedTable NotDelivered NothingLanded OWED_PREFIX
    OnlyAppends OpenedTable OutcomeUnknown OwedRow PATIENCE_MS SENT_ROWS STANDS_FOR SamePurges SinceTruncate StagedOwed
    TableWithAPast TableWithUpkeep TimeTravel UnfinishedMergeError VersionTaken _is_owed _unreplaced _until_nothing_is_found
    _what_is_wrong abandonRedo address_of after_merge before_attempt beside_compaction beside_fold beside_keys brought_back
    compact_as_allowed compact_as_one copied_from deltas_win failure_of foldAfterBatches foldBytes fold_after_batches
    fold_bytes frees_by_delete frees_by_move freshest_of_foreign handing_over holds_more is_ended_anew is_sparks
    looked_after looked_through may_be_sent move_main naming_misfits not_the_same nothing_left of_all_files owed_after
    owing_of parameters_of planned_again redo_of refuse_rest require_no_null require_still_whole require_whole segmentBytes
    share_frames spark_text stage_owed staged_owed store_of_name told_keys what_pays why_compact with_owed_rows
    without_nulls elsewhere/ merge/paths/ merge/run/ storage/adopting storage/applying storage/attempts storage/backend
    storage/catalogs storage/filecolumns storage/filesystem storage/log storage/managed storage/plain storage/redo
    storage/stores maintenance/folding maintenance/tiling maintenance/asone merge/analysis/kinds merge/analysis/understood
"""
"""Names that the code had once, without those that are ordinary words."""


def page_prose(text: str) -> str:
    """Return a page's prose, line by line, without code, headings and generated tables."""
    for pattern in (r"^```.*?^```$", r"<!-- (.*?): begin -->.*?<!-- \1: end -->"):
        text = re.sub(pattern, lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^#.*$", "", re.sub(r"`[^`]*`", lambda m: "`" + "\n" * m[0].count("\n"), text), flags=re.MULTILINE)


TEXTS = {token.STRING, token.COMMENT, getattr(token, "FSTRING_MIDDLE", token.STRING)}
JOINS = {token.NL, token.NEWLINE, token.INDENT, token.DEDENT}


def source_prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, comments and messages of a module with their first lines; adjacent ones as one text."""
    with tokenize.open(path) as file:
        tokens = list(tokenize.generate_tokens(file.readline))
    start, text = 0, ""
    for found in tokens:
        if found.type in TEXTS:
            start = start or found.start[0]
            plain = re.sub(r"^#+|^[a-zA-Z]{0,2}(\"{3}|'{3}|\"|')|(\"{3}|'{3}|\"|')$", "", found.string)
            gap = found.start[0] - start - text.count("\n")
            text += "\n" * gap + (" " if gap <= 0 else "") + re.sub(r"``[^`]*``", "`", plain)
        elif found.type not in JOINS and text:
            yield start, text
            start, text = 0, ""
    if text:
        yield start, text


def phrases(text: str, first_line: int, avoided: dict[str, str]) -> list[str]:
    """Return each phrase to avoid, with its line and what to write instead."""
    found = [(m.start(), m[0], instead) for p, instead in avoided.items() for m in re.finditer(p, text, re.IGNORECASE)]
    found += [(m.start(1), m[1], "begin with a noun") for m in OPENING.finditer(text)]
    return [
        f"{first_line + text.count(chr(10), 0, start)}: {' '.join(phrase.split())}: {instead}"
        for start, phrase, instead in sorted(found)
    ]


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page's paragraphs and list items; a colon and a semicolon end one."""
    text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d\.) )", text):
        plain = re.sub(r"\]\([^)]*\)", "]", " ".join(paragraph.split()))
        plain = re.sub(r"\((?:[SHU]\d\w*(?:\.\d)?(?:, | and | to )?)+\)", "", plain.replace("** *(ours)*.", ".**"))
        yield from re.split(r"(?<=[.:;?!])\)?\*{0,2}\s+", plain)


def shown(path: Path) -> str:
    """Return a path as tests show it."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if shown(p) not in PAGES_LEFT], ids=shown)
def test_a_page_is_in_plain_language(page):
    text = page_prose(page.read_text("utf-8"))
    assert [f"{shown(page)}:{found}" for found in phrases(text, 1, PHRASES | WORDS_OF_OURS)] == []
    assert [s for s in sentences(text) if len(s.split()) > LONGEST] == []


def test_pages_left_exist():
    assert [p for p in PAGES_LEFT if not (ROOT / p).exists()] == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=shown)
def test_a_module_is_in_plain_language(path):
    found = [f for start, text in source_prose(path) for f in phrases(text, start, PHRASES)]
    assert [f"{shown(path)}:{f}" for f in found] == []


SUMMARY = re.compile(
    r"(?:A|All|An|As|By|Each|How|It|Nothing|SQL|The|This|Those|What|Where|Whether|Which|Why|[A-Z][a-z]+[^s\W]s)\b"
)
"""The begin of a summary that is not an imperative: a noun, or a verb in the third person."""


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=shown)
def test_the_summary_of_a_function_is_an_imperative(path):
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.FunctionDef) or any("property" in ast.unparse(d) for d in node.decorator_list):
            continue
        summary = ast.get_docstring(node) or ""
        if SUMMARY.match(summary) and not summary.startswith(("Process ", "Pass ")):
            found.append(f"{shown(path)}:{node.lineno} {node.name}: {summary.splitlines()[0]}")
    assert found == []


def test_old_names_are_gone():
    old = re.compile(rf"(?<![\w/])(?:{'|'.join(map(re.escape, OLD_NAMES.split()))})(?:(?<=/)|(?!\w))")
    folders = (PACKAGE, ROOT / "tests", ROOT / "docs")
    files = [p for folder in folders for p in sorted(folder.rglob("*")) if p.suffix in (".py", ".md")]
    found = [
        f"{shown(path)}:{number}: {match[0]}"
        for path in [*files, ROOT / "README.md"]
        if path != Path(__file__)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        for match in old.finditer(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The rule stands\nin a page.", ["1: stands in"]),
        ("The rows.\n  What is left\nis told anew.", ["2: What", "3: is told", "3: anew"]),
        ("A column of its own is no key, for it is null.", ["1: of its own", "1: is no", "1: , for it"]),
        ("There is no key. The key is no longer there, and you can tell apart rows for each key.", []),
        ("See tables of Iceberg's, likewise.\n\nThat is all.", ["1: of Iceberg's", "1: likewise", "3: That"]),
    ],
)
def test_phrases_are_found(text, found):
    assert [f.rpartition(": ")[0] for f in phrases(text, 1, PHRASES)] == found


def test_prose_of_a_module_is_its_docstrings_comments_and_messages(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        '"""A key\nstands in ``what``."""\n\nx = 1  # it tells\n# which key\nraise ValueError(f"{x} is anew" "!")\n'
    )
    found = [f for start, text in source_prose(module) for f in phrases(text, start, PHRASES)]
    assert [f.rpartition(": ")[0] for f in found] == ["2: stands in", "4: tells", "6: anew"]


def test_prose_of_a_page_has_neither_code_nor_generated_tables():
    page = "# What?\n```python\nanew\n```\n<!-- a: begin -->\nanew\n<!-- a: end -->\nOne `anew`. Two."
    assert page_prose(page).split() == ["One", "`.", "Two."]
    assert list(sentences("- One (S12).\n- Two: three\n| anew |")) == ["- One .", "- Two:", "three"]
