"""The suite on Spark Connect: a session of that kind, and the tests that run on it (`pytest --remote part`, or `all`).

A process has either classic or Connect sessions. So this is a run of its own, after the classic one, against one Connect server
that is started in this process's JVM. `part` runs some tests of the files of `LANE`. `all` runs every test that has the fixture
`spark`, itself or through others; the rest is deselected, for it does the same whatever the session is. Tests that look into
classic Spark are marked `classic("why")` and skipped here, with their reason.
"""

from __future__ import annotations

import ast
import gc
import os
import shlex
import socket
from pathlib import Path
from zlib import crc32

import gateway
import processes
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

_HERE = Path(__file__).parent

LANE = {
    "test_connect.py": 1,
    "test_assertions.py": 1,
    "test_external.py": 2,
    "test_table.py": 2,
    "test_errors.py": 6,
    "test_executor.py": 6,
    "test_changes.py": 6,
    "test_explain.py": 6,
    "test_versions.py": 9,
    "test_maintenance.py": 8,
    "test_segments.py": 8,
    "test_merge.py": 8,
    "test_alter.py": 8,
    "test_constraints.py": 8,
    "test_evolution.py": 8,
    "test_inserts.py": 6,
    "test_partial_updates.py": 8,
    "test_outbox.py": 12,
    "test_reader.py": 8,
    "test_api.py": 4,
    "test_unchanged.py": 12,
    "test_strategies.py": 12,
    "test_query.py": 12,
}
"""Files that touch sessions, sources, plans, metrics and errors, and the share of their tests that run with `--remote part`: one in
so many, chosen by name: what they say of merges has been proved before, and by now they repeat what `test_connect.py` says of
Connect. `--remote all` runs all of them, and all other files."""


def start(config: dict[str, str]) -> SparkSession:
    """A Connect session on a server that this process starts, reachable from this machine only."""
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    config = {
        **config,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),  # not Spark's 15002, which another run may have
        "spark.log.level": "OFF",  # a server logs what its clients ask wrongly, stack trace and all
    }
    # A Connect session would complain of settings that only a server takes when it starts, so they go past it.
    settings = [f"--conf {shlex.quote(f'{name}={value}')}" for name, value in config.items()]
    os.environ["PYTHONPATH"] = str(Path(__file__).parent.parent)  # for the server's own Python processes
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*settings, "pyspark-shell"])
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)
    os.environ[processes.SERVER] = f"sc://localhost:{port}"
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    # PySpark tells the server of evaluated rows that nobody has any more in a finalizer. Collected at the wrong moment, in a
    # thread of gRPC that is just starting, that waits for ever. So what is collected is collected between tests.
    gc.disable()
    gateway.forget_clusters(SparkContext.getOrCreate())  # the server's own, in this process's JVM
    return session


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the lane's tests, or all that use a session, and skips those among them that need classic Spark."""
    everything = config.getoption("--remote") == "all"
    chosen = {item for item in items if (_uses_spark(item) if everything else _is_in_lane(item))}
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]
    for item in items:
        marker = item.get_closest_marker("classic")
        if marker is not None:
            item.add_marker(pytest.mark.skip(reason=f"needs classic Spark: {marker.args[0]}"))


def _uses_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


def not_run() -> str:
    """What is marked so, as a table: the reasons, and the tests that have them."""
    found: dict[str, list[str]] = {}
    for file in sorted(_HERE.rglob("test_*.py")):
        for node in ast.parse(file.read_text()).body:
            name = str(file.relative_to(_HERE))
            for why in map(_reason, getattr(node, "decorator_list", ())):
                if why is not None:
                    found.setdefault(why, []).append(f"`{name}::{node.name}`")
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
                for why in map(_reason, ast.walk(node.value)):
                    if why is not None:
                        found.setdefault(why, []).append(f"`{name}`")
    rows = [f"| {why} | {', '.join(tests)} |" for why, tests in found.items()]
    return "\n".join(["| why not | tests |", "|---|---|", *rows])


def _reason(decorator: ast.expr) -> str | None:
    is_mark = isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.classic"
    return ast.literal_eval(decorator.args[0]) if is_mark else None


def _is_in_lane(item: pytest.Item) -> bool:
    return item.path.name in LANE and crc32(item.name.encode()) % LANE[item.path.name] == 0
