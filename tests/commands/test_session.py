"""The session that a command starts, in a process that has none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import processes
import pytest

ROOT = Path(__file__).parents[2]
ORDERS = ROOT / "tests" / "data" / "format-1" / "orders"


def command(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    whole = {**processes.small_sessions(), **environment}
    called = [sys.executable, "-m", "trinitymerge", *map(str, arguments)]
    return subprocess.run(called, capture_output=True, text=True, check=False, env=whole)


@pytest.mark.slow  # starts another Spark session
def test_a_session_is_silent_and_in_utc():
    found = command(
        "read", ORDERS, "--columns", "ts,id", "--where", "id = 267", "--master", "local[1]", TZ="Asia/Tokyo"
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == "ts\tid\n2023-11-14T22:13:20Z\t267\n"


@pytest.mark.slow  # starts another Spark session
def test_an_error_of_spark_is_one_line():
    found = command("read", ORDERS, "--where", "nothing = 1", "--master", "local[1]")
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (1, "", 1)
    assert "with name `nothing` cannot be resolved" in found.stderr


@pytest.mark.parametrize(
    ("environment", "says"),
    [({"JAVA_HOME": "/none"}, "JAVA_HOME is '/none'"), ({"JAVA_HOME": "", "PATH": "/none"}, "needs Java 17")],
)
def test_without_java_one_sentence_says_so(environment, says):
    found = command("read", ORDERS, **environment)
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (1, "", 1)
    assert says in found.stderr


def test_wrong_options_of_a_session():
    found = command("read", ORDERS, "--conf", "spark.x")
    assert (found.returncode, found.stderr) == (
        2,
        "error: Invalid value for '--conf': expected NAME=VALUE, got 'spark.x'.\n",
    )
