"""The lane on a cluster of processes: Spark's `local-cluster`, whose executors are processes of their own (`pytest --cluster`).

Broadcasts, checkpoints, observations and committers behave otherwise there than in one process. An executor may die in the
middle of a merge: `test_cluster.py` kills some.
"""

from __future__ import annotations

import os
import signal
import subprocess
from zlib import crc32

import pytest
from pyspark.sql import SparkSession

MASTER = "local-cluster[2,1,1024]"
"""Two executors, one core and 1 GB each."""

LANE = {
    "test_cluster.py": 1,
    "test_costs.py": 2,
    "test_minor_compaction.py": 4,
    "test_key_ranges.py": 12,
    "test_lookup.py": 3,
    "test_maintenance.py": 5,
    "test_merge.py": 8,
    "test_strategies.py": 8,
    "test_properties.py": 8,
    "test_reader.py": 8,
    "test_streaming.py": 6,
    "test_executor.py": 5,
}
"""Files whose tests run jobs that differ there, and the share that runs: one in so many, chosen by name."""


def start(config: dict[str, str]) -> SparkSession:
    """A session on such a cluster; an executor that dies is replaced."""
    builder = SparkSession.builder.master(MASTER).appName("trinitymerge tests on a cluster")
    for name, value in {**config, "spark.executor.memory": "1g", "spark.driver.host": "127.0.0.1"}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the lane's tests."""
    chosen = [i for i in items if i.path.name in LANE and crc32(i.name.encode()) % LANE[i.path.name] == 0]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def executors() -> list[int]:
    """The processes of the executors that this process's JVM has started."""
    lines = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    found = [line.split(None, 2) for line in lines.splitlines()]
    parents = {int(pid): int(parent) for pid, parent, *_ in found}
    stores = [int(f[0]) for f in found if len(f) > 2 and "CoarseGrainedExecutorBackend" in f[2] and "java" in f[2]]
    return [pid for pid in stores if os.getpid() in _ancestors(pid, parents)]


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while pid in parents and pid not in found:
        found.add(pid)
        pid = parents[pid]
    return found | {pid}


def kill_one() -> None:
    """Kills one executor, as a lost machine would be."""
    os.kill(executors()[0], signal.SIGKILL)
