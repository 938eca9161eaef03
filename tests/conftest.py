"""One small Spark session for all tests, and a directory where relative paths land.

The session is what a laptop has: two cores, two shuffle partitions, UTC, no UI. With `--remote part` it is a Spark Connect
session (`connect.py`); with `--lane` a part of the tests runs (`selection.py`). Hypothesis has two profiles: the default, and
`long` for `make test-long`.

Spark takes its plans as they are and interprets them, but for tests marked `generated`: those run as users do, with plans that
adapt and with code that Spark generates and compiles. With `--generated` (`make test-long`) all of them do.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import cluster
import connect
import gateway
import iceberg
import processes
import pytest
import selection
import storage
import tables
from hypothesis import settings
from pyspark.sql import SparkSession

from trinitymerge.errors import UnsupportedStorageError
from trinitymerge.fs import faults
from trinitymerge.maintenance import auto

# Most of a test is planning, in code that runs a few times. The code cache is large, because a small one is swept all the time; and
# classes do not fill the space that starts a collection. Little lives longer than its job: one thread that collects a large new
# generation now and then takes less than two that collect a small one together.
JVM = "-XX:ReservedCodeCacheSize=512m -XX:MetaspaceSize=768m -XX:+UseSerialGC -Xms2g -Xmn1200m"

# The JVM's second compiler takes 40 % of ten minutes of tests, and 3 % of the next hour: a shorter run does without. The first one
# takes little time to compile what would be interpreted else, so it begins early.
ONE_COMPILER, WORTH_TWO_COMPILERS = "-XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=0.2", 1500

# To plan again after every shuffle, and to generate and compile code, takes longer than to run it once over ten rows: a fifth of
# a test.
INTERPRETED = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
GENERATED = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}

settings.register_profile("default", deadline=None)  # Spark's first job takes seconds, the next milliseconds
settings.register_profile("long", deadline=None, max_examples=2000)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=selection.LANES, help="run a part; see tests/selection.py")
    parser.addoption("--cluster", action="store_true", help="run on a cluster of processes; see tests/cluster.py")
    parser.addoption("--storage", choices=storage.KINDS, help="tables are on a real server; see tests/storage.py")
    parser.addoption("--remote", choices=["part", "all"], help="run on Spark Connect; see tests/connect.py")
    parser.addoption("--iceberg", action="store_true", help="run on tables of Iceberg's; see tests/iceberg.py")
    parser.addoption("--deletion-vectors", action="store_true", help="make deletion vectors after every merge")
    parser.addoption(
        "--generated", action="store_true", help="let Spark adapt plans and generate code for every test, as users do"
    )


def pytest_configure(config: pytest.Config) -> None:
    processes.plans = GENERATED if config.getoption("--generated") else INTERPRETED
    if config.getoption("--remote"):  # says so of each setting that is no longer recommended; the tests try these, too
        config.addinivalue_line("filterwarnings", "ignore:The SQL config .* has been deprecated:UserWarning")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    is_elsewhere = config.getoption("--remote") or config.getoption("--iceberg")
    if config.getoption("--lane") and not is_elsewhere:
        selection.select(config, items)
    if config.getoption("--remote"):
        connect.select(config, items)
    if config.getoption("--iceberg"):
        iceberg.select(config, items)
    else:
        items[:] = [item for item in items if item.get_closest_marker("iceberg") is None]
    if config.getoption("--cluster"):
        cluster.select(config, items)
    else:
        items[:] = [item for item in items if item.get_closest_marker("cluster") is None]
    if config.getoption("--storage"):
        storage.select(config, items)
    else:
        items[:] = [item for item in items if item.get_closest_marker("storage") is None]
    if config.getoption("--lane") and is_elsewhere:
        selection.select_elsewhere(config, items)


def pytest_runtest_teardown() -> None:
    if not gc.isenabled():  # see connect.start
        gc.collect()


@pytest.fixture(autouse=True)
def deletion_vectors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the option or the mark, all batches of a table have deletion vectors after every merge (D1)."""
    if request.config.getoption("--deletion-vectors") or request.node.get_closest_marker("deletion_vectors"):
        monkeypatch.setattr(auto, "are_due", tables.has_batches_to_compare)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The shared session. Tests that need other settings restore what they set."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["TZ"] = "UTC"  # what collect() turns timestamps into
    time.tzset()
    home = tmp_path_factory.mktemp("spark")
    few = sum("spark" in getattr(item, "fixturenames", ()) for item in request.session.items) < WORTH_TWO_COMPILERS
    options = f"{JVM} {ONE_COMPILER}" if few else JVM
    config = {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"{options} -Dderby.system.home={home} -Djava.io.tmpdir={home}",
        # The parser remembers each way through its grammar. Without a limit, the texts of all tests fill the heap in half an hour.
        "spark.sql.parser.manageParserCaches": "true",
        "spark.sql.parser.parserDfaCacheFlushThreshold": "50000",
        "spark.buffer.pageSize": "1m",  # for ten rows; Spark's 16 MB for every sort and broadcast keep the collector busy
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.ui.explainMode": "simple",  # of every query, in an UI that nobody sees
        "spark.sql.ui.retainedExecutions": "30",  # what there would be to show fills the heap
        "spark.ui.enabled": "false",
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "500",
        "spark.ui.showConsoleProgress": "false",
        **processes.plans,
    }
    if request.config.getoption("--iceberg"):
        config.update(iceberg.settings(str(home / "lake")))
        tables.MAKES_ICEBERG = True
    if kind := request.config.getoption("--storage"):
        config.update(storage.start(kind, home / "storage").settings())
    if request.config.getoption("--remote"):
        session = connect.start(config)
        yield session
        session.stop()
        return
    if request.config.getoption("--cluster"):
        home_of_nodes = tmp_path_factory.mktemp("cluster") if request.config.getoption("--storage") else None
        session = cluster.start(config, home_of_nodes)
        session.sparkContext.setLogLevel("OFF")  # executors that die on purpose
        yield session
        session.stop()
        cluster.stop()
        storage.stop()
        return
    builder = SparkSession.builder.master("local[2]").appName("trinitymerge tests")
    for name, value in config.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    gateway.remember_names()
    gateway.hand_rows_over()
    if not request.config.getoption("--storage"):
        gateway.forget_clusters(session.sparkContext)
    yield session
    session.stop()
    storage.stop()


@pytest.fixture(autouse=True)
def generated_code(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is marked `generated` runs so; the mark of a test that needs no Spark starts none."""
    if request.node.get_closest_marker("generated") is None or "spark" not in request.fixturenames:
        yield
        return
    conf = request.getfixturevalue("spark").conf
    before = {name: conf.get(name) for name in GENERATED}
    for name, value in GENERATED.items():
        conf.set(name, value)
    yield
    for name, value in before.items():
        conf.set(name, value)


@pytest.fixture(scope="module")
def s3_server(request: pytest.FixtureRequest) -> Iterator[object]:
    """An S3 server on this machine (`s3server.py`), where the packages for one are installed."""
    for package in ("boto3", "moto.server"):
        pytest.importorskip(package)
    if request.config.getoption("--storage"):
        request.getfixturevalue("spark")  # starts it
        yield storage.running
        return
    with importlib.import_module("s3server").running() as server:
        yield server


@pytest.fixture
def work_dir(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A temporary working directory: relative paths land there, whether Python or Spark opens them."""
    if request.config.getoption("--remote"):  # the library makes paths absolute; Spark itself is handed no others
        monkeypatch.chdir(tmp_path)
        yield tmp_path
        return
    context = spark.sparkContext
    hadoop = context._jvm.org.apache.hadoop.fs
    local = hadoop.FileSystem.getLocal(context._jsc.hadoopConfiguration())
    before = local.getWorkingDirectory()
    monkeypatch.chdir(tmp_path)
    local.setWorkingDirectory(hadoop.Path(str(tmp_path)))
    yield tmp_path
    local.setWorkingDirectory(before)


@pytest.fixture
def at_point(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    """Runs something once, when this process comes to a fault point."""

    def install(point: str, action: Callable[[], object]) -> None:
        def hook(name: str) -> None:
            if name == point:
                monkeypatch.setattr(faults, "fault", lambda name: None)
                action()

        monkeypatch.setattr(faults, "fault", hook)

    return install


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """On tables of Iceberg's, a test that asks for what these have no means for is skipped, and says what it asked for."""
    try:
        return (yield)
    except UnsupportedStorageError as error:
        if not item.config.getoption("--iceberg") or item.get_closest_marker("iceberg") is not None:
            raise
        pytest.skip(f"refused: {error}"[:150])


def pytest_terminal_summary(terminalreporter, config):
    """What the simulation has gone through, and what the lane has left out."""
    if lane := config.getoption("--lane"):
        terminalreporter.write_line(
            f"This was a part of the tests. `{selection.COMMANDS[lane]}` runs more; `make help` lists all."
        )
    told = {"explored": [], "walked": []}
    for report in terminalreporter.stats.get("passed", []):
        for name, numbers in report.user_properties:
            told.get(name, []).append(numbers)
    if told["explored"]:
        states, schedules = map(sum, zip(*told["explored"], strict=True))
        steps, walks = map(sum, zip(*told["walked"], strict=True)) if told["walked"] else (0, 0)
        terminalreporter.write_line(
            f"simulation: {len(told['explored'])} scenarios explored whole, {states:,} states, {schedules:.3g} schedules; "
            f"{walks} random schedules of {steps:,} steps"
        )
