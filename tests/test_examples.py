import customers_scd2
import flights_cdc
import pytest

# As users run them, and with rows by the hundred thousand.
pytestmark = pytest.mark.generated


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


def test_customers_keep_their_history(spark, tmp_path, capsys):
    assert customers_scd2.run(spark, str(tmp_path / "customers"))
    printed = capsys.readouterr().out
    assert "changes 'current', a part of the primary key" in printed
    assert "such as the date from which a row holds (valid_from)" in printed


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
