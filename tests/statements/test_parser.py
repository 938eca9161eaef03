"""SQL statements, read: which clauses and calls they are, what is refused and where. Nothing here starts Spark.

Expressions are never SQLGlot's: what reaches the chain is what stands in the statement, character by character.
"""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import assume, given, strategies as st

from trinitymerge import InvalidMergeError, MissingPackageError, SqlError
from trinitymerge.merge.model.clauses import (
    All,
    Assignments,
    Delete,
    Insert,
    Update,
    WhenMatched,
    WhenNotMatched,
    WhenOnlyOnTarget,
)
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.statements.parser import statement_of
from trinitymerge.statements.tree import Column, DeleteFrom, Reference, UpdateTable
from trinitymerge.testing import Expr
from trinitymerge.testing.model.expressions import literal
from trinitymerge.testing.strategies import Columns, clause_lists

sqlglot = pytest.importorskip("sqlglot")

ORDERS = Reference(("orders",))
MERGE = "MERGE INTO orders AS A USING updates AS B ON A.id = B.id\n"
DELETE = "WHEN MATCHED THEN DELETE"


def merge(whens):
    return statement_of(MERGE + whens)


# MERGE ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("whens", "clauses"),
    [
        (DELETE, [WhenMatched(None, [Delete()])]),
        ("when matched then delete;", [WhenMatched(None, [Delete()])]),
        ("WHEN MATCHED AND B.op = 'D' THEN DELETE", [WhenMatched("B.op = 'D'", [Delete()])]),
        ("WHEN MATCHED THEN UPDATE SET *", [WhenMatched(None, [Update(All())])]),
        ("WHEN MATCHED THEN UPDATE SET * EXCEPT (a, `b c`)", [WhenMatched(None, [Update(All(["a", "b c"]))])]),
        (
            "WHEN MATCHED THEN UPDATE SET A.v = B.v, address.city = upper(B.city), `x y` = 1 + 1",
            [
                WhenMatched(
                    None, [Update(Assignments({"A.v": "B.v", "address.city": "upper(B.city)", "`x y`": "1 + 1"}))]
                )
            ],
        ),
        ("WHEN NOT MATCHED THEN INSERT *", [WhenNotMatched(None, [Insert(All())])]),
        ("WHEN NOT MATCHED BY TARGET AND B.id > 1 THEN INSERT *", [WhenNotMatched("B.id > 1", [Insert(All())])]),
        ("WHEN NOT MATCHED THEN INSERT * EXCEPT (a)", [WhenNotMatched(None, [Insert(All(["a"]))])]),
        (
            "WHEN NOT MATCHED THEN INSERT (id, A.`x y`) VALUES (B.id, coalesce(B.x, 'a, b)'))",
            [WhenNotMatched(None, [Insert(Assignments({"id": "B.id", "A.`x y`": "coalesce(B.x, 'a, b)')"}))])],
        ),
        ("WHEN NOT MATCHED BY SOURCE THEN DELETE", [WhenOnlyOnTarget(None, [Delete()])]),
        (
            "WHEN NOT MATCHED BY SOURCE AND A.open THEN UPDATE SET open = false",
            [WhenOnlyOnTarget("A.open", [Update(Assignments({"open": "false"}))])],
        ),
        (
            "WHEN NOT MATCHED AND B.op <> 'D' THEN INSERT * WHEN MATCHED AND B.op = 'D' THEN DELETE "
            "WHEN NOT MATCHED BY SOURCE THEN DELETE WHEN MATCHED THEN UPDATE SET *",
            [
                WhenNotMatched("B.op <> 'D'", [Insert(All())]),
                WhenMatched("B.op = 'D'", [Delete()]),
                WhenOnlyOnTarget(None, [Delete()]),
                WhenMatched(None, [Update(All())]),
            ],
        ),
    ],
)
def test_clauses_of_a_merge_are_those_of_the_chain_in_their_order(whens, clauses):
    assert merge(whens).clauses == tuple(clauses)


AS_WRITTEN = [
    "CASE WHEN A.v = 'WHEN MATCHED THEN' THEN CASE A.x WHEN 1 THEN 2 END ELSE 3 END",
    "A.`when matched` /* THEN */ + 1",
    "concat(')', \"(\", 'it''s', 'a\\'b')",
    "transform(B.xs, x -> x + 1)[0]",
    "A.end <=> B.case",
    "A.v IS NOT DISTINCT FROM B.v",
    "NOT (A.v <=> B.v) -- not equal\n  OR A.v IS NULL",
    "1L + 2.5BD",
    "map('a', 1)['a']",
    "A.ts > TIMESTAMP '2024-01-01 00:00:00' - INTERVAL '1' DAY",
    "named_struct('city', B.city, 'zip', nvl2(B.zip, 1, 0))",
    "B.v:price::decimal(10, 2)",
    "A.limit > 3 AND B.order < 2",
    "A.v NOT BETWEEN 1 AND 2 AND A.v IN (1, 2)",
    "if(A.v == 1, x'ab', r'\\d')",
    "B.`a.b`.c  <>   -  1",
]


@pytest.mark.parametrize("text", AS_WRITTEN)
def test_expressions_are_the_users_text_wherever_they_stand(text, monkeypatch):
    monkeypatch.setattr(sqlglot.generator.Generator, "generate", None)  # nobody asks SQLGlot for SQL
    found = statement_of(
        f"MERGE INTO orders A USING updates B ON {text} WHEN MATCHED AND {text} THEN UPDATE SET a = {text}, b = {text} "
        f"WHEN NOT MATCHED BY SOURCE AND {text} THEN DELETE WHEN NOT MATCHED THEN INSERT (a, b) VALUES ({text}, {text})"
    )
    assert found.condition == text
    assert found.clauses == (
        WhenMatched(text, [Update(Assignments({"a": text, "b": text}))]),
        WhenOnlyOnTarget(text, [Delete()]),
        WhenNotMatched(None, [Insert(Assignments({"a": text, "b": text}))]),
    )
    assert statement_of(f"UPDATE orders SET a = {text} WHERE {text}") == UpdateTable(
        ORDERS, None, Assignments({"a": text}), text
    )
    assert statement_of(f"DELETE FROM orders WHERE {text}") == DeleteFrom(ORDERS, None, text)


SOURCES = {
    "updates": ("SELECT * FROM updates", "updates", ["updates"]),
    "updates AS s": ("SELECT * FROM updates AS s", "s", ["updates"]),
    "shop.updates s": ("SELECT * FROM shop.updates s", "s", ["shop.updates"]),
    "trinity.`/a b/c`": ("SELECT * FROM trinity.`/a b/c`", None, ["trinity./a b/c"]),
    "trinity.`/a b/c` s": ("SELECT * FROM trinity.`/a b/c` s", "s", ["trinity./a b/c"]),
    "(SELECT * FROM x JOIN y ON x.a = y.a) AS s": (
        "SELECT * FROM (SELECT * FROM x JOIN y ON x.a = y.a) AS s",
        "s",
        ["x", "y"],
    ),
    "(VALUES (1, 'a')) AS s(id, v)": ("SELECT * FROM (VALUES (1, 'a')) AS s(id, v)", "s", []),
    "VALUES (1, 'ON') AS s(id, v)": ("SELECT * FROM VALUES (1, 'ON') AS s(id, v)", "s", []),
    "(WITH c AS (SELECT * FROM x) SELECT * FROM c) s": (
        "SELECT * FROM (WITH c AS (SELECT * FROM x) SELECT * FROM c) s",
        "s",
        ["x"],
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_source_of_a_merge_is_a_query_of_one_relation(source):
    text, alias, names = SOURCES[source]
    query = statement_of(f"MERGE INTO t USING {source} ON a = b {DELETE}").source
    assert " ".join(query.text.split()) == text
    assert query.alias == alias
    assert [r.name for r in query.references] == names


def test_common_table_expressions_belong_to_the_source():
    text = f"WITH a AS (SELECT * FROM t), b (x) AS (SELECT * FROM a)\nMERGE INTO t USING b ON t.x = b.x {DELETE}"
    query = statement_of(text).source
    assert " ".join(query.text.split()) == "WITH a AS (SELECT * FROM t), b (x) AS (SELECT * FROM a) SELECT * FROM b"
    assert [(r.name, text[r.start : r.end]) for r in query.references] == [("t", "t")]


def test_schema_evolution_and_aliases_of_the_target():
    assert statement_of(f"MERGE WITH SCHEMA EVOLUTION INTO t USING s ON a {DELETE}").evolves
    plain = statement_of(f"MERGE INTO shop.t USING s ON a {DELETE}")
    assert (plain.evolves, plain.alias, plain.target) == (False, None, Reference(("shop", "t")))
    assert statement_of(f"MERGE INTO t `an alias` USING s ON a {DELETE}").alias == "an alias"


# Other statements -----------------------------------------------------------------------------------------------------

SIMPLE = {
    "DELETE FROM orders": DeleteFrom(ORDERS, None, None),
    "delete from orders o where o.id = 1": DeleteFrom(ORDERS, "o", "o.id = 1"),
    "UPDATE orders SET a = 1": UpdateTable(ORDERS, None, Assignments({"a": "1"})),
    "UPDATE orders AS o SET o.a = o.a + 1, b = NULL WHERE o.a < 3": UpdateTable(
        ORDERS, "o", Assignments({"o.a": "o.a + 1", "b": "NULL"}), "o.a < 3"
    ),
}


@pytest.mark.parametrize("text", SIMPLE)
def test_statements_say_what_they_say(text):
    assert statement_of(text) == SIMPLE[text]


@pytest.mark.parametrize(
    ("text", "query", "columns", "by_name"),
    [
        ("INSERT INTO t VALUES (1, 2), (3, 4)", "VALUES (1, 2), (3, 4)", None, False),
        ("INSERT INTO TABLE t SELECT * FROM s", "SELECT * FROM s", None, False),
        ("INSERT INTO t (a, `b c`) SELECT 1, 2", "SELECT 1, 2", (Column("a"), Column("b c")), False),
        ("INSERT INTO t (SELECT 1)", "(SELECT 1)", None, False),
        ("INSERT INTO t (table, `values`) SELECT 1, 2", "SELECT 1, 2", (Column("table"), Column("values")), False),
        ("INSERT INTO t BY NAME SELECT 1 AS a", "SELECT 1 AS a", None, True),
        ("INSERT INTO t TABLE s", "TABLE s", None, False),
        ("WITH c AS (SELECT 1) INSERT INTO t SELECT * FROM c", "WITH c AS (SELECT 1) SELECT * FROM c", None, False),
        ("INSERT INTO t WITH c AS (SELECT 1) SELECT * FROM c", "WITH c AS (SELECT 1) SELECT * FROM c", None, False),
    ],
)
def test_inserts_take_rows_or_a_query(text, query, columns, by_name):
    found = statement_of(text)
    assert " ".join(found.source.text.split()) == query
    assert (found.target, found.columns, found.by_name) == (Reference(("t",)), columns, by_name)


# Tables in queries ----------------------------------------------------------------------------------------------------

QUERIES = {
    "SELECT * FROM orders": ["orders"],
    "TABLE orders": ["orders"],
    "FROM orders SELECT id": ["orders"],
    "SELECT * FROM a, b JOIN c.d USING (id) LEFT ANTI JOIN e ON true": ["a", "b", "c.d", "e"],
    "SELECT (SELECT max(id) FROM a) FROM b WHERE EXISTS (SELECT 1 FROM c) AND id IN (TABLE d)": ["a", "b", "c", "d"],
    "SELECT * FROM a UNION ALL TABLE b EXCEPT SELECT * FROM c": ["a", "b", "c"],
    "WITH a AS (SELECT * FROM a), b AS (SELECT * FROM a) SELECT * FROM a JOIN b JOIN c": ["a", "c"],
    "SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM A) JOIN a": ["a"],
    "WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT * FROM r JOIN s": ["s"],
    "SELECT orders.id, 'FROM a', `FROM b` FROM orders -- FROM c": ["orders"],
    "SELECT /*+ BROADCAST(orders) */ * FROM orders": ["orders"],
    "SELECT * FROM range(3) JOIN json.`/x` JOIN trinity.`/y`": ["json./x", "trinity./y"],
    "SELECT extract(YEAR FROM day), trim(BOTH 'x' FROM v) FROM orders": ["orders"],
}


@pytest.mark.parametrize("text", QUERIES)
def test_tables_of_a_query_are_found_where_they_stand_and_common_table_expressions_are_none(text):
    references = statement_of(text).query.references
    assert [r.name for r in references] == QUERIES[text]
    assert [text[r.start : r.end].replace("`", "") for r in references] == QUERIES[text]


def test_tables_of_queries_in_expressions_are_found_too():
    text = (
        f"{MERGE}WHEN MATCHED AND B.id IN (SELECT id FROM a JOIN b VERSION AS OF 1) THEN UPDATE SET v = (WITH c AS (TABLE d) "
        "SELECT max((SELECT 1 FROM e)) FROM c) WHEN NOT MATCHED BY SOURCE AND EXISTS ((TABLE f)) THEN DELETE"
    )
    found = statement_of(text)
    assert [r.name for r in found.inner] == ["a", "b", "d", "e", "f"]
    assert [text[r.start : r.end] for r in found.inner] == ["a", "b VERSION AS OF 1", "d", "e", "f"]
    assert found.clauses[0].condition == "B.id IN (SELECT id FROM a JOIN b VERSION AS OF 1)"
    assert statement_of("DELETE FROM t WHERE f(`select`, table) AND trim(FROM x) = 'SELECT'").inner == ()
    for query, names in {
        "(VALUES (2) UNION ALL SELECT id FROM u)": ["u"],
        "((VALUES (2)) UNION SELECT id FROM u)": ["u"],
        "(((SELECT a FROM v)) UNION SELECT a FROM w)": ["v", "w"],
        "((values + 1), ((a)))": [],
    }.items():
        assert [r.name for r in statement_of(f"DELETE FROM t WHERE id IN {query}").inner] == names, query


@pytest.mark.parametrize(
    ("text", "version", "timestamp"),
    [
        ("VERSION AS OF 3", 3, None),
        ("FOR VERSION AS OF '3'", 3, None),
        ("for system_version as of 3", 3, None),
        ("TIMESTAMP AS OF '2024-05-01'", None, "2024-05-01"),
        ("FOR SYSTEM_TIME AS OF TIMESTAMP '2024-05-01 10:00:00'", None, "2024-05-01 10:00:00"),
        ("FOR TIMESTAMP AS OF DATE'2024-05-01'", None, "2024-05-01"),
    ],
)
def test_versions_are_asked_for_behind_the_name(text, version, timestamp):
    whole = f"SELECT o.* FROM orders {text} o JOIN orders"
    then, now = statement_of(whole).query.references
    assert (then.version, then.timestamp, then.alias_at) == (version, timestamp, None)
    assert whole[then.start : then.end] == f"orders {text}"
    assert (now.version, now.timestamp, now.alias_at) == (None, None, len(whole))


def test_an_alias_is_added_where_the_grammar_takes_one():
    text = "SELECT * FROM orders TABLESAMPLE (10 PERCENT) REPEATABLE (1), shop.orders"
    assert [text[: r.alias_at] for r in statement_of(text).query.references] == [
        "SELECT * FROM orders TABLESAMPLE (10 PERCENT) REPEATABLE (1)",
        text,
    ]
    assert statement_of("TABLE orders").query.references[0].alias_at is None


# Refused --------------------------------------------------------------------------------------------------------------

REFUSED = [
    # statement, what stands where the error says it is, words of the error
    ("", "", "The text is empty"),
    ("-- nothing", "-- nothing", "The text is empty"),
    ("DELETE FROM a; DELETE FROM b", "DELETE FROM b", "a second statement"),
    ("SELECT 1;\nSELECT 2;", "SELECT 2", "a second statement"),
    ("SELECT 'abc", "'abc", "never closed"),
    ("DELETE FROM t WHERE `a", "`a", "never closed"),
    ("SELECT /* abc", "/* abc", "never closed"),
    ("INSERT OVERWRITE t SELECT 1", "INSERT", "drop rows that the statement does not name.*NOT MATCHED BY SOURCE"),
    ("TRUNCATE TABLE t", "TRUNCATE", r'deleteWhere\("true"\)'),
    ("CREATE TABLE t (a INT)", "CREATE", r"TrinityTable\.create"),
    ("CREATE OR REPLACE TABLE t AS SELECT 1", "CREATE", "keys"),
    ("DROP TABLE t", "DROP", "directory"),
    ("REPLACE INTO t VALUES (1)", "REPLACE", "MERGE"),
    ("OPTIMIZE t", "OPTIMIZE", r"compact\(\)"),
    ("VACUUM t", "VACUUM", r"vacuum\(\)"),
    ("RESTORE TABLE t TO VERSION AS OF 1", "RESTORE", r"restore\(version\)"),
    ("EXPLAIN SELECT 1", "EXPLAIN", r"build\(\)\.explain\(\)"),
    ("DESCRIBE HISTORY t", "DESCRIBE", r"table\.detail\(\) and table\.history\(\)"),
    ("DESC t", "DESC", r"print\(table\.definition\)"),
    ("SHOW TABLES", "SHOW", "not a supported statement"),
    ("BEGIN", "BEGIN", "one atomic commit"),
    ("COMMENT ON TABLE t IS 'x'", "COMMENT", r"setComment\(\.\.\.\)"),
    ("ALTER TABLE t ADD COLUMN a INT", "ALTER", r"table\.alter\(\) with addColumn"),
    # MERGE
    ("MERGE orders USING s ON a WHEN MATCHED THEN DELETE", "orders", "INTO is expected"),
    ("MERGE INTO orders VERSION AS OF 3 USING s ON a WHEN MATCHED THEN DELETE", "VERSION", "read only"),
    ("MERGE INTO t WHEN MATCHED THEN DELETE", "MATCHED", "USING is expected"),
    ("MERGE INTO t USING ON a WHEN MATCHED THEN DELETE", "ON", "source is missing"),
    ("MERGE INTO t USING s", "", "ON is expected"),
    ("MERGE INTO t USING s ON WHEN MATCHED THEN DELETE", "WHEN", "condition is missing"),
    ("MERGE INTO t USING s ON a", "", "WHEN is expected"),
    ("MERGE INTO t USING a JOIN b ON a.x = b.x ON t.x = a.x WHEN MATCHED THEN DELETE", "JOIN", "one relation"),
    ("MERGE INTO t USING a, b ON t.x = a.x WHEN MATCHED THEN DELETE", "a, b", "one relation"),
    ("MERGE\nINTO t\nUSING (SELECT 1\nFROM a b c) s ON a WHEN MATCHED THEN DELETE", "c", "cannot parse"),
    ("MERGE INTO t USING (SELECT FROM WHERE) s ON a WHEN MATCHED THEN DELETE", "WHERE", "cannot parse"),
    (MERGE + "WHEN MATCHED DELETE", "DELETE", "THEN is expected"),
    (MERGE + "WHEN MATCHED AND THEN DELETE", "THEN", "condition is missing"),
    (MERGE + "WHEN MATCHED AND (a THEN DELETE", "(", "never closed"),
    (MERGE + "WHEN MATCHED AND CASE WHEN a THEN b THEN DELETE", "CASE", "never closed.*backticks"),
    (MERGE + "WHEN SOURCE THEN DELETE", "SOURCE", "MATCHED or NOT MATCHED"),
    (MERGE + "WHEN MATCHED THEN INSERT *", "INSERT", r"cannot insert.*updateExpr\(\{\.\.\.\}\)\.insertExpr"),
    (MERGE + "WHEN MATCHED THEN DO NOTHING", "DO", "are unchanged"),
    (MERGE + "WHEN MATCHED THEN UPDATE SET a", "", "= is expected"),
    (MERGE + "WHEN MATCHED THEN UPDATE SET a = 1 WHERE b", "WHERE", "WHEN MATCHED AND"),
    (MERGE + "WHEN MATCHED THEN DELETE RETURNING *", "RETURNING", "result"),
    (MERGE + "WHEN MATCHED THEN UPDATE SET a = B.a OUTPUT x", "OUTPUT", "result"),
    (
        MERGE + "WHEN MATCHED THEN DELETE\nWHEN MATCHED THEN DELETE",
        "WHEN MATCHED THEN DELETE",
        "can never run: WHEN MATCHED,",
    ),
    (MERGE + "WHEN NOT MATCHED THEN DELETE", "DELETE", "no target row"),
    (MERGE + "WHEN NOT MATCHED THEN UPDATE SET a = 1", "UPDATE", "no target row"),
    (MERGE + "WHEN NOT MATCHED THEN INSERT VALUES (1)", "VALUES", "Name the columns"),
    (MERGE + "WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)", "(1)", "2 columns and 1 values"),
    (MERGE + "WHEN NOT MATCHED BY SOURCE THEN INSERT *", "INSERT", "insertExpr"),
    (MERGE + "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *", "UPDATE", "no source row"),
    # UPDATE, DELETE, INSERT
    ("UPDATE t SET * WHERE a", "*", "Name the columns"),
    ("UPDATE t SET a = (SELECT max(b c d) FROM x)", "c d", "cannot parse"),
    ("UPDATE t SET a = 1 FROM b WHERE t.x = b.x", "FROM", "MERGE"),
    ("UPDATE t JOIN b SET a = 1", "JOIN", "MERGE"),
    ("UPDATE t SET a = 1) WHERE b", ")", "complete before"),
    ("UPDATE t SET a = 1 RETURNING a", "RETURNING", "result"),
    ("DELETE t WHERE a", "t", "FROM is expected"),
    ("DELETE FROM t USING b WHERE a", "USING", "MERGE"),
    ("DELETE FROM t WHERE a = 1 LIMIT 3", "LIMIT", "WHERE"),
    ("DELETE FROM t WHERE", "", "condition is missing"),
    ("WITH c AS (SELECT 1) DELETE FROM t", "DELETE", "Put it into the query"),
    (
        "WITH c AS (SELECT 1) MERGE INTO t USING c ON t.x IN (SELECT x FROM C) WHEN MATCHED THEN DELETE",
        "C)",
        "Only the source sees",
    ),
    ("INSERT INTO t", "", "missing"),
    ("INSERT INTO t PARTITION (a = 1) SELECT 1", "PARTITION", "no partitions"),
    ("INSERT INTO t REPLACE WHERE a = 1 SELECT 1", "REPLACE", "MERGE"),
    ("INSERT INTO t VALUES (1, DEFAULT)", "DEFAULT", "Omit the column"),
    ("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", "ON", "MERGE"),
    # queries
    ("SELECT a\nFROM b c d", "d", "cannot parse"),
    ("SELECT * FROM orders o VERSION AS OF 3", "VERSION", "before its alias"),
    ("SELECT * FROM orders VERSION AS OF 'x'", "VERSION", "is a number"),
    ("SELECT * FROM orders TIMESTAMP AS OF current_timestamp()", "TIMESTAMP", "TrinityTable.forPath"),
]


@pytest.mark.parametrize(("text", "at", "words"), REFUSED)
def test_what_cannot_be_done_is_refused_where_it_stands(text, at, words):
    with pytest.raises(SqlError, match=re.compile(words, re.DOTALL)) as error:
        statement_of(text)
    line, column = error.value.line, error.value.column
    there = "\n".join(text.splitlines()[line - 1 :])[column - 1 :]
    assert there.startswith(at)
    assert at or not there.strip()
    assert str(error.value).startswith(f"Line {line}, column {column}")
    assert isinstance(error.value, InvalidMergeError)


def test_inserts_behind_a_query_are_none():
    with pytest.raises(SqlError):
        statement_of("FROM a INSERT INTO b SELECT *")


def test_a_statement_is_text():
    with pytest.raises(InvalidMergeError, match="text, got bytes"):
        statement_of(b"DELETE FROM t")


def test_without_SQLGlot_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'trinitymerge\[sql\]'") as error:
        statement_of("DELETE FROM t")
    assert isinstance(error.value, ImportError)


# Generated clauses ----------------------------------------------------------------------------------------------------

FIELDS = [
    Field("k1", "integer"),
    Field("k2", "string"),
    Field("v", "integer"),
    Field("w", "string"),
    Field("t1", "long"),
]
COLUMNS = Columns(
    TableDefinition.of(FIELDS, primaryKey=["k1", "k2"], watermarkKey="t1"),
    (*FIELDS, Field("op", "string"), Field("n", "integer")),
)
KINDS = {WhenMatched: "MATCHED", WhenNotMatched: "NOT MATCHED", WhenOnlyOnTarget: "NOT MATCHED BY SOURCE"}
BLANKS = [" ", "\n", "\t ", " /* WHEN MATCHED THEN ' */ ", " -- AND (\n"]


@st.composite
def rendered(draw):
    """Clauses of generated lists, each with one action that SQL has for it, and a MERGE that says so."""
    known = [(clause, one_action(clause)) for clause in draw(clause_lists(COLUMNS))]
    wanted = [with_text(draw, clause, action) for clause, action in known if action is not None]
    assume(wanted)
    words = [word for clause in wanted for word in words_of(draw, clause)]
    blanks = draw(st.lists(st.sampled_from(BLANKS), min_size=len(words), max_size=len(words)))
    return tuple(wanted), MERGE + "".join(blank + word for blank, word in zip(blanks, words, strict=True))


def one_action(clause):
    """The insert of rows without a match, else the update or delete; None if there is none."""
    wanted = (Insert,) if isinstance(clause, WhenNotMatched) else (Update, Delete)
    return next((action for action in clause.actions if isinstance(action, wanted)), None)


def with_text(draw, clause, action):
    """The same clause with every expression as text; now and then one that is hard to read."""

    def text(value):
        sql = value.sql if isinstance(value, Expr) else literal(value).sql
        return draw(st.sampled_from([sql, sql, sql, *AS_WRITTEN]))

    if action.assignments:
        action = type(action)(Assignments([(name, text(value)) for name, value in action.assignments]))
    elif action.from_source is not None:
        action = type(action)(All(action.from_source.exceptColumns))  # SQL has no words for its other options
    return type(clause)(None if clause.condition is None else text(clause.condition), [action])


def words_of(draw, clause):
    (action,) = clause.actions
    by_target = ["BY TARGET"] if isinstance(clause, WhenNotMatched) and draw(st.booleans()) else []
    condition = [] if clause.condition is None else ["AND", clause.condition]
    return ["WHEN", KINDS[type(clause)], *by_target, *condition, "THEN", *action_words(action)]


def action_words(action):
    if isinstance(action, Delete):
        return ["DELETE"]
    start = ["UPDATE", "SET"] if isinstance(action, Update) else ["INSERT"]
    if isinstance(action.values, All):
        names = action.values.exceptColumns
        return [*start, "*", *(["EXCEPT", f"({', '.join(names)})"] if names else [])]
    pairs = action.values.items
    if isinstance(action, Update):
        assigned = [word for name, value in pairs for word in (",", name, "=", value)]
        return [*start, *assigned[1:]]
    values = [word for _, value in pairs for word in (",", value)]
    return [*start, f"({', '.join(name for name, _ in pairs)})", "VALUES", "(", *values[1:], ")"]


@given(rendered())
def test_clauses_rendered_to_SQL_and_read_again_are_the_same(case):
    clauses, text = case
    found = statement_of(text)
    assert found.clauses == clauses, text
    assert [text[place:].startswith("WHEN") for place in found.places] == [True] * len(clauses)
