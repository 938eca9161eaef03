"""S40: points in time mean the same whatever the zone of the session, of this process, and the session's type of timestamps."""

from __future__ import annotations

import datetime as dt
import functools
import os
import time
from zoneinfo import ZoneInfo

import pytest
from tables import new_table

from trinitymerge import TableNotFoundError, TrinityTable

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]
MOMENTS = [
    dt.datetime(2026, 10, 25, 0, 30, tzinfo=dt.timezone.utc),  # 2:30 in Berlin, for the first time
    dt.datetime(2026, 10, 25, 1, 30, tzinfo=dt.timezone.utc),  # 2:30 in Berlin, for the second time
    dt.datetime(2026, 11, 1, 5, 30, 0, 123000, tzinfo=dt.timezone.utc),  # twice 1:30 in New York
]


def milliseconds(moment):
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(milliseconds=1)


@pytest.fixture
def zone(spark):
    """Sets the session's zone, or its type of timestamps, until the test ends."""
    names = ("spark.sql.session.timeZone", "spark.sql.timestampType")
    before = {name: spark.conf.get(name) for name in names}
    yield lambda value: spark.conf.set(names["/" not in value and value != "UTC"], value)
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture
def process_zone():
    """Sets this process's zone until the test ends."""

    def change(name):
        os.environ["TZ"] = name
        time.tzset()

    before = os.environ["TZ"]
    yield change
    change(before)


@pytest.fixture
def table(spark, tmp_path, monkeypatch):
    """A table with a commit at each of the moments: versions 0 to 2."""
    made = None
    for moment in MOMENTS:
        for module in ("trinitymerge.log.model", "trinitymerge.stores.managed"):
            monkeypatch.setattr(f"{module}.now_ms", functools.partial(milliseconds, moment))
        if made is None:
            made = new_table(spark, tmp_path, "id INT")
        else:
            made.upsert(spark.range(1).selectExpr("CAST(id AS INT) AS id")).execute()
    return made


@pytest.mark.parametrize("session", ZONES)
@pytest.mark.parametrize("process", ["UTC", "America/New_York"])
def test_S40_history_and_timestampAsOf_agree_in_every_zone(spark, table, zone, process_zone, session, process):
    zone(session)
    process_zone(process)
    assert [r[0] for r in table.history().selectExpr("unix_millis(timestamp)").collect()] == [
        milliseconds(moment) for moment in reversed(MOMENTS)
    ]
    local = [moment.astimezone(ZoneInfo(session)) for moment in MOMENTS]
    printed = [r[0] for r in table.history().selectExpr("CAST(timestamp AS STRING)").collect()]
    assert [p[:19] for p in reversed(printed)] == [f"{at:%Y-%m-%d %H:%M:%S}" for at in local]
    naive = local[2].replace(tzinfo=None) + dt.timedelta(hours=3)  # away from the hour that occurs twice
    for later in (
        naive,
        str(naive),
        naive.isoformat(),
        local[2],
        MOMENTS[2],
        MOMENTS[2].isoformat(),
        f"{naive} {session}",
    ):
        assert TrinityTable.forPath(spark, table.path, timestampAsOf=later).version == 2, later
    for at, version in ((MOMENTS[1], 1), (MOMENTS[1] - dt.timedelta(milliseconds=1), 0), (MOMENTS[0], 0)):
        assert TrinityTable.forPath(spark, table.path, timestampAsOf=at).version == version
    with pytest.raises(TableNotFoundError, match="did not exist at"):
        TrinityTable.forPath(spark, table.path, timestampAsOf=local[0].replace(tzinfo=None) - dt.timedelta(hours=2))


def test_S40_what_spark_reads_as_a_timestamp_is_a_point_in_time(spark, table, zone):
    zone("Asia/Kolkata")
    zone("TIMESTAMP_NTZ")
    for text, version in {
        "2026-10-26": 1,
        "2026-11": 1,
        "2027": 2,
        "2026-10-25 06:15": 0,
        "2026-10-25T07:00:00.000001": 1,
        "2026-10-25T01:30+00:00": 1,
        "2026-10-25 02:00:00 Europe/Berlin": None,
        "2026-10-25 02:59:00 Europe/Berlin": 0,
        dt.date(2026, 10, 26): 1,
    }.items():
        if version is None:
            with pytest.raises(TableNotFoundError):
                TrinityTable.forPath(spark, table.path, timestampAsOf=text)
        else:
            assert TrinityTable.forPath(spark, table.path, timestampAsOf=text).version == version, text
    assert table.history().schema["timestamp"].dataType.simpleString() == "timestamp"


@pytest.mark.parametrize("wrong", ["yesterday", "", "it's", "25.10.2026", "2026-13-01", 5, True])
def test_S40_what_is_no_point_in_time_says_what_would_be(spark, table, wrong):
    with pytest.raises(ValueError, match=r"timestampAsOf takes a datetime, or text that Spark reads.*got") as refused:
        TrinityTable.forPath(spark, table.path, timestampAsOf=wrong)
    assert repr(wrong) in str(refused.value)
