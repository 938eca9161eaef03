"""What statements cannot do here, and what to do instead.

Owns: the words of these refusals. A statement that would do less than it says is refused; none is passed over in silence.
"""

from __future__ import annotations

from trinitymerge.statements.cursor import Cursor

STATEMENTS = {
    "INSERT OVERWRITE": "it would drop rows nobody named. Delete them first, DELETE FROM t WHERE ..., or let a MERGE with WHEN "
    "NOT MATCHED BY SOURCE THEN DELETE, or table.snapshot(...), find out what is gone.",
    "TRUNCATE": 'say DELETE FROM t, or table.deleteWhere("true"): tombstones keep late rows from coming back.',
    "REPLACE": "a MERGE inserts new rows and updates the others; TrinityTable.create makes a table.",
    "UPSERT": "say MERGE INTO, or table.upsert(source).",
    "CREATE": "a table needs keys, for which SQL has no words: TrinityTable.create(spark, path, schema, primaryKey=...).",
    "DROP": "a table is a directory: remove it, and take it out of tables.",
    "OPTIMIZE": "say table.compact().",
    "VACUUM": "say table.vacuum().",
    "RESTORE": "say table.restore(version).",
    "EXPLAIN": "a merge is explained by the chain, build().explain(), and a query by the DataFrame that it gives, .explain().",
    "DESCRIBE": "DESCRIBE [TABLE] [EXTENDED] t, DESCRIBE DETAIL t and DESCRIBE HISTORY t are what there is.",
    "COMMENT": "COMMENT ON TABLE t IS '...' is what there is; ALTER TABLE t ALTER COLUMN c COMMENT '...' is for columns.",
    "COPY": "read the files with spark.read, and INSERT INTO or MERGE what they hold.",
    "BEGIN": "each statement is one atomic commit, and there are no transactions of several. One MERGE can do much.",
    "CALL": "maintenance is done by methods of TrinityTable: compact, vacuum, restore, purge.",
}
STATEMENTS["DESC"] = STATEMENTS["DESCRIBE"]

KNOWN = (
    "MERGE INTO, UPDATE, DELETE FROM, INSERT INTO, ALTER TABLE, COMMENT ON TABLE, DESCRIBE, SELECT, WITH and VALUES are "
    "known here; spark.sql runs what concerns no TrinityTable."
)

_REST = {
    "RETURNING": "what a statement has changed stands in its result, and in table.changes(fromVersion).",
    "OUTPUT": "what a statement has changed stands in its result, and in table.changes(fromVersion).",
    "LIMIT": "which rows it would leave out is not certain. Say it with WHERE.",
    "ORDER": "the rows of a table have no order. Say with WHERE which are meant.",
    "FROM": "it sees one table. Write a MERGE with the other as its source.",
    "JOIN": "it sees one table. Write a MERGE with the other as its source.",
    "USING": "it sees one table. Write a MERGE with the other as its source: WHEN MATCHED THEN DELETE.",
    "WHERE": "put it into the clause's condition: WHEN MATCHED AND ... THEN.",
    "PARTITION": "tables have no partitions, and files are sorted by primary key.",
}

ENDS = ("RETURNING", "OUTPUT", "LIMIT", "ORDER")
"""Words that end an expression although no statement here goes on with them."""


def refuse_several(cursor: Cursor) -> None:
    """Refuses a text of more than one statement: what has happened would be unclear if a later one failed.

    Raises:
        SqlError: it has several.
    """
    for number, token in enumerate(cursor.tokens):
        if token.kind == "symbol" and token.value == ";":
            cursor.at = min(number + 1, len(cursor.tokens) - 1)
            raise cursor.error("This is another statement, and each call runs one.")


def refuse_statement(cursor: Cursor) -> None:
    """Refuses a statement by its first words.

    Raises:
        SqlError: always.
    """
    words = [cursor.word(), cursor.word(1)]
    known = next((w for w in (" ".join(words), words[0]) if w in STATEMENTS), None)
    if known is None:
        raise cursor.error(f"This is no statement about a table. {KNOWN}")
    raise cursor.error(f"{known} is not done here: {STATEMENTS[known]}")


def refuse_rest(cursor: Cursor, statement: str) -> None:
    """Refuses what stands behind a statement that is complete, if anything does.

    Raises:
        SqlError: something does.
    """
    if cursor.done:
        return
    reason = _REST.get(cursor.word())
    if reason is not None:
        raise cursor.error(f"{statement} takes no {cursor.word()}: {reason}")
    raise cursor.error(f"{statement} is complete before this.")
