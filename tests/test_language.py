"""The language of pages and of the package: phrases to avoid, and long sentences.

A phrase is reported as ``file:line: phrase``.
"""

from __future__ import annotations

import re
import token
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "trinitymerge"
PAGES = [ROOT / "README.md", ROOT / "tests" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

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


def test_pages_are_in_plain_language():
    texts = [(shown(page), page_prose(page.read_text("utf-8"))) for page in PAGES]
    assert [f"{page}:{found}" for page, text in texts for found in phrases(text, 1, PHRASES | WORDS_OF_OURS)] == []
    assert [(page, s) for page, text in texts for s in sentences(text) if len(s.split()) > LONGEST] == []


def test_the_package_is_in_plain_language():
    texts = [(shown(path), *text) for path in sorted(PACKAGE.rglob("*.py")) for text in source_prose(path)]
    assert [f"{path}:{f}" for path, start, text in texts for f in phrases(text, start, PHRASES)] == []


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
