"""Other Python processes that work on the same tables, for tests of concurrency and of crashes.

By default they share this session's JVM, which spares the seconds a JVM takes to start: every process has its own
interpreter and its own view of the files, and one that is killed takes nothing along. With a session of their own they
are what production has. On Spark Connect they share its server, each with a session of its own; those with a JVM of their
own are classic there, too, so that both kinds write one table.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from gateway import hand_rows_over, remember_names
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from trinitymerge import TrinityTable
from trinitymerge.fs import faults
from trinitymerge.fs.faults import VARIABLE
from trinitymerge.spark.session import is_connect

ROOT = Path(__file__).parent.parent

plans: dict[str, str] = {}
"""The settings by which processes with sessions of their own run plans, besides Spark's defaults."""
_PLANS = "TRINITYMERGE_TESTS_PLANS"

# What `connect.py` sets for the processes that share its server, and what Spark sets, from 4.1 on, so that they may.
SERVER = "TRINITYMERGE_TESTS_SERVER"
_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_MODE = "SPARK_CONNECT_MODE_ENABLED"
_OF_CONNECT = (_TOKEN, "SPARK_REMOTE", "SPARK_LOCAL_REMOTE", _MODE, "PYSPARK_SUBMIT_ARGS")

_PREAMBLE = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
import json, os, time
from processes import session
from trinitymerge import TrinityTable
spark = session()
table = TrinityTable.forPath(spark, sys.argv[1])
"""


def start(path: str, code: str, share: SparkSession | None, *args: object, fault: str = "") -> subprocess.Popen[str]:
    """Starts a process that runs some code with ``spark``, ``table`` and ``sys.argv[2:]``.

    Args:
        path: of the table.
        code: Python.
        share: whose JVM to use; None starts one of its own.
        args: what ``sys.argv`` holds from 2 on.
        fault: where the process kills itself.
    """
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "TZ": "UTC", "SPARK_LOCAL_IP": "127.0.0.1"}
    for name in (VARIABLE, SERVER, *_OF_CONNECT, "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        environment.pop(name, None)
    environment[_PLANS] = json.dumps(plans)
    if share is not None:
        environment |= _way_to(share)
    if fault:
        environment[VARIABLE] = fault
    return subprocess.Popen(
        [sys.executable, "-c", _PREAMBLE + code, path, *map(str, args)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def run_logged(command: Sequence[str], log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a server whose output goes to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server listens."""
    end = time.monotonic() + 90
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < end, log.read_text()[-2000:]
        time.sleep(0.1)


_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([__name__, "pytest", "tables"])


def fork(
    function: Callable[..., object], path: str, share: SparkSession, *args: object, fault: str = ""
) -> BaseProcess:
    """Starts a process that calls ``function(spark, table, *args)``, in a second: it need not import anything first.

    Args:
        function: one that a module of tests holds.
        path: of the table.
        share: whose JVM to use.
        args: what can be pickled.
        fault: where the process kills itself.
    """
    _start_server()
    process = _forks.Process(target=_forked, args=(_way_to(share), fault, function, path, args), daemon=True)
    process.start()
    return process


def _way_to(share: SparkSession) -> dict[str, str]:
    """What tells another process how to reach this session's JVM, or its server."""
    if is_connect(share):
        return {name: os.environ[name] for name in (SERVER, _TOKEN, _MODE) if name in os.environ}
    parameters: Any = share.sparkContext._gateway.gateway_parameters
    return {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}


def _start_server() -> None:
    """The server imports what it finds where PYTHONPATH says, and goes on without a word if that is nowhere."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def _forked(
    way: dict[str, str], fault: str, function: Callable[..., object], path: str, args: tuple[object, ...]
) -> None:
    os.environ.update(way)
    spark = session()
    table = TrinityTable.forPath(spark, path)
    if fault:
        faults.fault = faults.killer(fault)
    function(spark, table, *args)


def finish(process: subprocess.Popen[str], seconds: float = 300) -> str:
    """Waits for a process that must succeed; returns what it printed."""
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        kill(process)
        raise
    assert process.returncode == 0, f"exit code {process.returncode}\n{output}\n{errors}"
    return output


def kill(process: subprocess.Popen[str]) -> None:
    """Kills a process and the JVM it started, all at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def was_killed(process: subprocess.Popen[str], seconds: float = 120) -> bool:
    """Waits for a process that may kill itself, and takes its JVM along; any other failure is an error here."""
    ends = time.monotonic() + seconds
    while process.poll() is None:
        if time.monotonic() > ends:
            kill(process)
            raise subprocess.TimeoutExpired(process.args, seconds)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=0.05)  # takes what was printed: the JVM would wait for ever were its pipe full
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), errors
    return process.returncode != 0


def session() -> SparkSession:
    """The session of a process started here: in the shared JVM or on the shared server, or in a small JVM of its own."""
    if SERVER in os.environ:
        return SparkSession.builder.remote(os.environ[SERVER]).getOrCreate()
    remember_names()
    hand_rows_over()
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return _own_session()
    gateway = launch_gateway()
    jvm: Any = gateway.jvm
    context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    shared = SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))
    return SparkSession(shared, jvm.org.apache.spark.sql.SparkSession.getDefaultSession().get().newSession())


_SMALL = {
    "spark.driver.memory": "768m",
    "spark.buffer.pageSize": "1m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Or its heap grows for a thousand queries.
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "20",
}
"""The settings of a session that does little and ends."""


def small_sessions() -> dict[str, str]:
    """Return an environment in which commands and notebooks start small Spark sessions, which takes half of the time."""
    settings = (f"--conf={name}={value}" for name, value in {**_SMALL, **plans}.items())
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": shlex.join([*settings, "pyspark-shell"])}


def _own_session() -> SparkSession:
    builder = SparkSession.builder.master("local[1]").appName("trinitymerge writer")
    for name, value in {**_SMALL, **json.loads(os.environ.get(_PLANS, "{}"))}.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made
