import zipfile

import airports_history
import customers_scd2
import external_jdbc
import flights_cdc
import iceberg_migration
import pytest
from airports_history import Extract, utc
from helpers import assertRows

# As users run them, and with rows by the hundred thousand.
pytestmark = pytest.mark.generated


@pytest.mark.slow
def test_three_days_of_flights_are_what_the_data_set_says(spark, tmp_path, capsys):
    assert flights_cdc.run(spark, days=3, path=str(tmp_path / "flights"))
    printed = capsys.readouterr().out
    assert "[ 7/7] check it against the data set" in printed
    assert "append batches             4" in printed
    before, _, after = printed.partition("The two flights now")
    assert "|scheduled|" in before
    assert "|boarding |" in before
    assert "|landed|" in after.replace(" ", "")
    assert "boarding" not in after  # late corrections lose


@pytest.mark.slow
def test_flights_demo_shows_the_rows_that_are_wrong(spark, tmp_path, capsys):
    flights = flights_cdc.load_flights(spark, tmp_path)
    expected = flights_cdc.expected_rows(flights, days=1).limit(100).cache()
    assert flights_cdc.agrees(expected, expected)
    one = expected.first().flight_id
    assert not flights_cdc.agrees(expected.filter(expected.flight_id != one), expected)
    printed = capsys.readouterr().out
    assert "NOT AS EXPECTED: 1 differing rows" in printed
    assert one in printed
    expected.unpersist()


def test_flights_demo_refuses_a_path_that_exists(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        flights_cdc.main(["--path", str(tmp_path)])
    assert "exists already" in capsys.readouterr().err


@pytest.mark.slow
def test_customers_keep_their_history(spark, tmp_path, capsys):
    assert customers_scd2.run(spark, str(tmp_path / "customers"))
    printed = capsys.readouterr().out
    assert "changes 'current', a part of the primary key" in printed
    assert "such as the date from which a row holds (valid_from)" in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("constant", "careless", "lost"),
    [
        ("HAS_CHANGED", "A.name <> B.name OR A.city <> B.city", (3, "Carl", "Göttingen")),
        ("IS_NEWS", "true", (2, "Blaise", "Paris")),
    ],
)
def test_customers_history_is_wrong_where_the_merge_is_careless(
    spark, tmp_path, capsys, monkeypatch, constant, careless, lost
):
    monkeypatch.setattr(customers_scd2, constant, careless)
    assert not customers_scd2.run(spark, str(tmp_path / "customers"))
    assert f"NOT AS EXPECTED: missing row {lost}"[:-1] in capsys.readouterr().out


# An outbox in a database ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_outbox_in_a_database_is_read_and_merged(spark, tmp_path, capsys):
    assert external_jdbc.run(spark, str(tmp_path / "orders"))
    printed = capsys.readouterr().out
    assert "2 inserted, 1 updated, 1 deleted" in printed
    assert "NOT AS EXPECTED" not in printed


def test_outbox_example_shows_the_rows_that_are_wrong(spark, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(external_jdbc, "merge", lambda managed, outbox: managed.upsert(outbox).execute())
    assert not external_jdbc.run(spark, str(tmp_path / "orders"))
    assert "NOT AS EXPECTED: the managed table in the evening: wrong row (103," in capsys.readouterr().out


# Airports --------------------------------------------------------------------------------------------------------

MARCH, JUNE, SEPTEMBER = utc("2024-03-01 00:00:00"), utc("2024-06-01 00:00:00"), utc("2024-09-01 00:00:00")


@pytest.fixture
def extracts(spark):
    """Three made-up extracts, the second of which comes last: one airport is renamed, one gone for a while, one measured anew."""

    def extract(name, taken_at, *airports):
        rows = [(icao, None, named, "", "", "XX", 1.0, lat, 0.0, "UTC", None) for icao, named, lat in airports]
        return Extract(name, taken_at, spark.createDataFrame(rows, airports_history.CSV_SCHEMA))

    return [
        extract("first", MARCH, ("AAAA", "Old", 1.25), ("BBBB", "There", 2.5), ("CCCC", "Same", 3.75)),
        extract("third", SEPTEMBER, ("AAAA", "Old", 1.25), ("BBBB", "There", 2.5), ("CCCC", "Same", 4.0)),
        extract("second", JUNE, ("AAAA", "New", 1.25), ("CCCC", "Same", 4.0)),
    ]


@pytest.mark.slow
def test_airports_of_three_extracts_have_the_versions_that_these_tell_of(spark, tmp_path, capsys, extracts):
    assert airports_history.run(spark, extracts, str(tmp_path / "airports"))
    printed = capsys.readouterr().out
    assert "published 2024-06-01, LATE" in printed
    assert "versions                               7" in printed
    assert "versions but for coordinates           6" in printed
    assert "The airport with the most versions, AAAA" in printed


def test_right_answer_of_the_airports_demo(extracts):
    versions = airports_history.expected_versions(extracts)
    told = versions.selectExpr("icao", "name", "lat", "month(validFrom)", "month(validTo)", "isCurrent")
    always = [
        ("AAAA", "Old", 1.25, 3, 6, False),
        ("AAAA", "New", 1.25, 6, 9, False),
        ("AAAA", "Old", 1.25, 9, None, True),
    ]
    always += [("BBBB", "There", 2.5, 3, 6, False), ("BBBB", "There", 2.5, 9, None, True)]
    assertRows(told, [*always, ("CCCC", "Same", 3.75, 3, 6, False), ("CCCC", "Same", 4.0, 6, None, True)])
    versions = airports_history.expected_versions(extracts, untracked=["lat"])
    told = versions.selectExpr("icao", "name", "lat", "month(validFrom)", "month(validTo)", "isCurrent")
    assertRows(told, [*always, ("CCCC", "Same", 4.0, 3, None, True)])


def test_airports_demo_shows_the_rows_that_are_wrong(capsys, extracts):
    right = airports_history.expected_versions(extracts)
    assert airports_history.agrees(right, right)
    assert not airports_history.agrees(right.filter("icao <> 'CCCC'"), right)
    printed = capsys.readouterr().out
    assert "NOT AS EXPECTED: 2 differing rows" in printed
    assert "CCCC" in printed


def test_airports_are_read_from_the_cached_wheel(spark, tmp_path):
    with zipfile.ZipFile(tmp_path / "airportsdata-20240401-py3-none-any.whl", "w") as wheel:
        names = ",".join(f'"{name}"' for name in airports_history.COLUMNS)
        row = '"LEST","SCQ","Santiago, ""Rosalía de Castro""","Santiago","Galicia","ES",1213,42.89633,-8.41514,"Europe/Madrid",""'
        wheel.writestr("airportsdata/airports.csv", f"{names}\n{row}\n")
    extract, *others = airports_history.load(spark, ["20240401"], tmp_path)
    assert not others
    assert extract.taken_at == utc("2024-04-01 11:27:36")
    known = ("LEST", "SCQ", 'Santiago, "Rosalía de Castro"', "Santiago", "Galicia", "ES", 1213.0, 42.89633, -8.41514)
    assertRows(extract.rows, [(*known, "Europe/Madrid", None)])


def test_airports_demo_says_what_to_do_without_a_package_index(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(SystemExit, match="pip could not fetch airportsdata==20240401") as refused:
        airports_history.unpacked("20240401", tmp_path)
    assert f"put the file into {tmp_path}" in str(refused.value)


def test_airports_demo_refuses_a_path_that_exists(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        airports_history.main(["--path", str(tmp_path)])
    assert "exists already" in capsys.readouterr().err


@pytest.mark.iceberg
def test_a_nightly_job_of_icebergs_becomes_one_of_ours(spark, capsys):
    assert iceberg_migration.run(spark, orders=5000, nights=6)
    printed = capsys.readouterr().out
    assert "0 of the expected are missing, 0 are there that should not be" in printed
    assert "night 5: " in printed.partition("night 6: ")[2]  # late
