"""What errors of the chain advise, in the words of SQL, for those that a statement makes.

Owns: the list of such advice. An error that advises a call which no statement has would send its user away from what is written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_IN_SQL = (
    (
        r"Add them, or use merge\(\) with updateAll\(.*\)\.",
        "Add them to its query, or leave them out: UPDATE SET * EXCEPT ({columns}).",
    ),
    (
        r"Add them, or use merge\(\) with insertAll\(.*\)\.",
        "Add them to its query, or leave them out: INSERT * EXCEPT ({columns}).",
    ),
    (r"Add it to the map\.", "Name it, and give it a value: INSERT (column, ...) VALUES (value, ...)."),
    (
        r"Assign the watermark in the map, let the source have the column, or add \.at\(value\)\. To correct .*",
        "Assign the watermark in the statement, or let the source have the column. For what SQL has no words, at(value) and "
        'onStale("force"), there is the chain: table.merge(...).',
    ),
    (r"table\.alias\('\w+'\) and df\.alias\('\w+'\) give a side another\.", "AS behind a side gives it another."),
    (r"table\.alias\('\w+'\) gives it another\.", "AS behind the table gives it another."),
    (r"give one of them another with alias\(\.\.\.\)\.", "give one of them another with AS."),
    (r"A str is SQL; if the text (.*) is meant, write it as \"('.*')\"\.", r"If the text \1 is meant, write it as \2."),
)
"""By what is advised, as a pattern: what to advise instead."""


def in_sql(message: str, columns: Sequence[str] = ()) -> str:
    """A message, with advice that a statement can follow.

    Args:
        message: of an error of the chain.
        columns: that the error is about.

    Example:
        >>> in_sql("The source has no n. Add them, or use merge() with insertAll(exceptColumns=[...]).", ["n"])
        'The source has no n. Add them to its query, or leave them out: INSERT * EXCEPT (n).'
    """
    for advised, instead in _IN_SQL:
        listed = ", ".join(columns).replace("\\", r"\\") or "..."
        message = re.sub(advised, instead.replace("{columns}", listed), message)
    return message
