"""Commands that read and change rows: what they write, on the session of the tests."""

from __future__ import annotations

import csv
import datetime
import io
import json
from decimal import Decimal

import click
import pytest
from tables import live_rows

from trinitymerge import TrinityTable
from trinitymerge.commands.app import run
from trinitymerge.commands.reading import key_of, typed_keys
from trinitymerge.commands.rows import records
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field

SCHEMA = "id INT, lang STRING, ts INT, v STRING"


@pytest.fixture
def words(spark, tmp_path):
    table = TrinityTable.create(
        spark, f"{tmp_path}/words", SCHEMA, primaryKey=["id", "lang"], watermarkKey="ts", history=True
    )
    for ts, rows in ((1, [(1, "en", "one"), (2, "de", "zwei")]), (2, [(1, "en", "ONE")]), (3, [(3, "de", "drei")])):
        source = spark.createDataFrame([(i, lang, ts, v) for i, lang, v in rows], SCHEMA)
        table.upsert(source).execute()
    return table


def called(capsys, *arguments):
    code = run([str(a) for a in arguments])
    found = capsys.readouterr()
    return code, found.out, found.err


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_read_filters_projects_and_limits(words, capsys):
    code, out, _ = called(capsys, "read", words.path, "--where", "id > 1", "--columns", "v,id", "--json")
    assert code == 0
    assert sorted(lines(out), key=lambda r: r["id"]) == [{"v": "zwei", "id": 2}, {"v": "drei", "id": 3}]
    assert len(lines(called(capsys, "read", words.path, "-n", 1, "--json")[1])) == 1
    assert len(lines(called(capsys, "read", words.path, "--at", 1, "--json")[1])) == 2
    assert len(lines(called(capsys, "read", words.path, "--as-of", 2, "--json")[1])) == 2
    found = list(csv.DictReader(io.StringIO(called(capsys, "read", words.path, "--all", "--format", "csv")[1])))
    assert sorted(r["v"] for r in found) == ["ONE", "drei", "zwei"]
    code, _, err = called(capsys, "read", words.path, "--columns", "w")
    assert (code, "Column 'w' is missing" in err) == (2, True)
    code, _, err = called(capsys, "read", words.path, "--where", "nothing = 1")
    assert (code, err.count("\n"), "nothing" in err) == (1, 1, True)


def test_why_and_versions_take_keys(words, capsys):
    code, out, _ = called(capsys, "why", words.path, "id=1,lang=en", "--json")
    assert (code, [(r["v"], r["_why"].split(":")[0]) for r in lines(out)]) == (0, [("ONE", "current"), ("one", "lost")])
    assert lines(called(capsys, "why", words.path, '{"id": 1, "lang": "en"}', "--json")[1]) == lines(out)
    code, _, err = called(capsys, "why", words.path, "id=9,lang=en")
    assert (code, "never written" in err) == (0, True)
    code, out, _ = called(capsys, "versions", words.path, "id=1,lang=en", "--json", "--valid-to", "until")
    assert [(r["v"], r["validFrom"], r["until"]) for r in lines(out)] == [("one", 1, 2), ("ONE", 2, None)]
    assert len(lines(called(capsys, "versions", words.path, "--all", "--json")[1])) == 4
    code, _, err = called(capsys, "why", words.path, "5")
    assert (code, "id=VALUE,lang=VALUE" in err) == (2, True)
    for command in ("why", "versions"):
        code, out, err = called(capsys, command, words.path, "id=abc,lang=en")
        said = "'abc' is not a value of key column id, which is int."
        assert (code, out, said in err, len(err) < 200) == (2, "", True, True)


def test_a_key_is_text_pairs_or_json(words):
    definition = words.definition
    assert key_of("lang=a,id=1", definition) == {"id": "1", "lang": "a"}
    assert key_of('{"id": 1, "lang": "a,b=c"}', definition) == {"id": 1, "lang": "a,b=c"}


def test_changes_and_diff(words, capsys):
    code, out, _ = called(capsys, "changes", words.path, 1, "--count", "--json")
    assert {r["_change_type"]: r["count"] for r in lines(out)} == {
        "insert": 1,
        "update_postimage": 1,
        "update_preimage": 1,
    }
    assert len(lines(called(capsys, "changes", words.path, 1, 2, "--json")[1])) == 2
    code, out, err = called(capsys, "diff", f"{words.path}@1", words.path, "--json")
    assert code == 3
    assert [(r["difference"], r["id"]) for r in lines(out)] == [("differs", 1), ("only in B", 3)]
    code, out, err = called(capsys, "diff", words.path, words.path)
    assert (code, out, err) == (0, "", "No difference.\n")
    assert called(capsys, "diff", words.path, f"{words.path}@2", "--quiet") == (3, "", "")


def test_diff_compares_with_files(words, capsys, tmp_path):
    words.toDF().write.parquet(f"{tmp_path}/plain")
    assert called(capsys, "diff", f"{tmp_path}/plain", words.path)[0] == 0
    (tmp_path / "a.csv").write_text("id,v\n1,x\n")
    (tmp_path / "b.csv").write_text("id,v\n1,y\n")
    code, out, err = called(capsys, "diff", tmp_path / "a.csv", tmp_path / "b.csv", "--on", "id")
    assert (code, '"a": "x"' in out, "1 row: 1 differs" in err) == (3, True, True)
    code, _, err = called(capsys, "diff", tmp_path / "a.csv", tmp_path / "b.csv")
    assert (code, "--on" in err) == (2, True)


def test_sql_reads_merges_and_plans(words, capsys):
    named = ("-t", f"w={words.path}")
    assert lines(called(capsys, "sql", *named, "SELECT max(id) AS n FROM w", "--json")[1]) == [{"n": 3}]
    update = (
        "MERGE INTO w USING (SELECT 3 AS id, 'de' AS lang, 4 AS ts, 'DREI' AS v) s "
        "ON w.id = s.id AND w.lang = s.lang WHEN MATCHED THEN UPDATE SET *"
    )
    code, out, _ = called(capsys, "sql", *named, "--dry-run", update)
    assert (code, "Strategy" in out, words.version) == (0, True, 3)
    code, out, _ = called(capsys, "sql", *named, "--json", update)
    assert (code, json.loads(out)["rowsUpdated"], words.version) == (0, 1, 4)
    code, _, err = called(capsys, "sql", *named, "--dry-run", "SELECT 1")
    assert (code, "only for statements that change rows" in err) == (1, True)
    assert called(capsys, "sql", *named, "SELEC 1")[0] == 1
    assert called(capsys, "sql")[0] == 2


def test_maintenance_shows_what_it_would_do_and_asks(words, spark, capsys, tmp_path):
    code, out, _ = called(capsys, "compact", words.path, "--dry-run")
    assert (code, out) == (0, f"version 3: a compaction would rewrite 3 batches of 4 rows ({out.split('(')[1]}")
    assert words.version == 3
    code, out, _ = called(capsys, "compact", words.path, "--json")
    assert (code, json.loads(out)["batches"]) == (0, 3)
    code, out, err = called(capsys, "vacuum", words.path)
    assert (code, out, err.startswith("0 files and directories deleted. Files that")) == (0, "", True)
    assert "are kept for the retention of 168 hours" in err
    listed = called(capsys, "vacuum", words.path, "--retention", 0, "--dry-run")[1].splitlines()
    code, out, err = called(capsys, "vacuum", words.path, "--retention", 0)
    assert (code, out, "--yes" in err) == (2, "", True)
    code, out, _ = called(capsys, "vacuum", words.path, "--retention", 0, "--yes", "--json")
    assert (code, json.loads(out)) == (0, {"dryRun": False, "paths": listed})
    code, _, err = called(capsys, "vacuum", words.path, "--retention", 0)
    assert (code, err) == (0, "0 files and directories deleted.\n"), "nothing to delete, so nothing to ask"


def test_purge_takes_keys_a_condition_or_a_file(words, spark, capsys, tmp_path):
    code, _, err = called(capsys, "purge", words.path, "id=1,lang=en")
    assert (code, "Erase 1 key" in err, len(live_rows(words))) == (2, True, 3)
    code, out, _ = called(capsys, "purge", words.path, "id=1,lang=en", "--yes", "--json")
    assert (code, json.loads(out)["rowsRemoved"]) == (0, 2)
    (tmp_path / "keys.csv").write_text("lang,id\nde,2\n")
    assert called(capsys, "purge", words.path, "--from", tmp_path / "keys.csv", "--yes")[0] == 0
    assert called(capsys, "purge", words.path, "--where", "v = 'drei'", "--yes")[0] == 0
    assert live_rows(words) == []
    assert called(capsys, "purge", words.path, "--yes")[0] == 2


def test_restore_clone_and_export_make_copies(words, spark, capsys, tmp_path):
    assert called(capsys, "restore", words.path, 1)[0] == 2
    code, out, _ = called(capsys, "restore", words.path, 1, "--yes", "--json")
    assert (code, json.loads(out)["restored"], len(live_rows(words))) == (0, 1, 2)
    assert called(capsys, "clone", words.path, f"{tmp_path}/copy", "--at", 3)[0] == 0
    assert len(live_rows(TrinityTable.forPath(spark, f"{tmp_path}/copy"))) == 3
    code, out, _ = called(capsys, "export", words.path, f"{tmp_path}/out", "--json")
    assert (code, json.loads(out)["rows"], spark.read.parquet(f"{tmp_path}/out").count()) == (0, 2, 2)
    code, out, _ = called(capsys, "query-for", words.path, "duckdb")
    assert (code, "read_parquet" in out) == (0, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["read"],
        ["why", "1"],
        ["versions"],
        ["changes", "0"],
        ["compact"],
        ["vacuum"],
        ["export", "x"],
        ["restore", "1"],
    ],
)
def test_a_wrong_path_is_one_sentence(spark, capsys, tmp_path, arguments):
    command, *more = arguments
    code, out, err = called(capsys, command, f"{tmp_path}/none", *more)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("error: ")
    assert "none" in err


def test_values_of_rows_are_plain_and_times_are_utc(spark):
    rows = spark.sql(
        "SELECT timestamp'2026-01-02 03:04:05+01:00' AS t, timestamp_ntz'2026-01-02 03:04:05' AS n, 1.50BD AS d, "
        "map('k', named_struct('t', timestamp'2026-01-02 00:00:00Z')) AS m, array(1, NULL) AS a, CAST(NULL AS DATE) AS z"
    )
    (found,) = records(rows.collect(), rows.schema)
    utc = datetime.timezone.utc
    assert found == {
        "t": datetime.datetime(2026, 1, 2, 2, 4, 5, tzinfo=utc),
        "n": datetime.datetime(2026, 1, 2, 3, 4, 5),
        "d": Decimal("1.50"),
        "m": [{"key": "k", "value": {"t": datetime.datetime(2026, 1, 2, tzinfo=utc)}}],
        "a": [1, None],
        "z": None,
    }


def test_a_report_with_a_scan_counts_stored_rows_of_keys(words, tmp_path, capsys):
    words.delete(words.toDF().where("id = 3").selectExpr("id", "lang", "ts + 1 AS ts")).execute()
    path = tmp_path / "words.html"
    code, out, _ = called(capsys, "report", words.path, "--scan", "-o", path)
    assert (code, out) == (0, f"{path}\n")
    page = path.read_text("utf-8")
    assert "5 rows of 3 keys stored, 2 rows live." in page
    assert "1 row stored: 1 key" in page
    assert "one of them" not in page
    words.report(str(path), keys=True, scan=True)
    assert "{&quot;id&quot;:1,&quot;lang&quot;:&quot;en&quot;}" in path.read_text("utf-8")
    code, _, err = called(capsys, "report", words.path, "--scan", "-o", "-")
    assert (code, "not used with -o -" in err) == (2, True)


def test_S17a_a_key_may_have_any_number_of_digits_but_is_not_rounded(spark):
    own = TableDefinition.of([Field("k", "decimal(38,0)", nullable=False)], primaryKey="k")

    def typed(text):
        return typed_keys(spark.createDataFrame([(text,)], "k STRING"), own).first()[0]

    assert typed("9" * 38) == Decimal("9" * 38)
    for text in ("1.5", "100000000000000000000.5"):
        with pytest.raises(click.BadParameter, match="is not a value of key column k"):
            typed(text)
