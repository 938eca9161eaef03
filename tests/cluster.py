"""The lane on a cluster of processes: Spark's `local-cluster`, whose executors are processes of their own (`pytest --cluster`).

With `--storage` it is a standalone cluster, a master and two workers, with speculation and dynamic allocation. Broadcasts,
checkpoints, observations and committers behave otherwise there than in one process. An executor or a worker may die in the middle
of a merge: `test_cluster.py` kills some.
"""

from __future__ import annotations

import os
import signal
import subprocess
from functools import partial
from pathlib import Path
from zlib import crc32

import pyspark
import pytest
from processes import free_port, run_logged, wait_for
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


STANDALONE = {
    "spark.speculation": "true",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "2",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.executor.cores": "1",
}
"""Settings of a session on a standalone cluster: tasks run twice, and executors come and go."""


def start(config: dict[str, str], standalone: Path | None = None) -> SparkSession:
    """A session on such a cluster; an executor that dies is replaced. ``standalone`` is a directory for a cluster of that kind."""
    master, more = (MASTER, {}) if standalone is None else (_standalone(standalone), STANDALONE)
    builder = SparkSession.builder.master(master).appName("trinitymerge tests on a cluster")
    for name, value in {**config, **more, "spark.executor.memory": "1g", "spark.driver.host": "127.0.0.1"}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


_nodes: list[subprocess.Popen[bytes]] = []
"""Of a standalone cluster: the master, and the workers."""

_workers: partial[subprocess.Popen[bytes]] | None = None
"""How another worker is started."""


def _standalone(directory: Path) -> str:
    """Start a master and two workers, and return the master's address."""
    global _workers
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    _nodes.append(_node(directory, "master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0"))
    wait_for(port, _nodes[0], directory / "master.Master.log")
    own = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", directory)
    _workers = partial(_node, directory, "worker.Worker", *own, address)
    _nodes.extend([_workers(), _workers()])
    return address


def _node(directory: Path, name: str, *arguments: object) -> subprocess.Popen[bytes]:
    command = [Path(pyspark.__path__[0]) / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    environment = {**os.environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1"}
    return run_logged(list(map(str, command)), directory / f"{name}.log", environment)


def stop() -> None:
    """End the nodes of a standalone cluster, if there is one."""
    while _nodes:
        _nodes[-1].kill()
        _nodes.pop().wait(30)


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the lane's tests."""
    lane = {"test_cluster.py": 1} if config.getoption("--storage") else LANE
    chosen = [i for i in items if i.path.name in lane and crc32(i.name.encode()) % lane[i.path.name] == 0]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def executors() -> list[int]:
    """The processes of the executors that this process's JVM has started."""
    found, parents = _processes(), _parents()
    stores = [int(f[0]) for f in found if len(f) > 2 and "CoarseGrainedExecutorBackend" in f[2] and "java" in f[2]]
    return [pid for pid in stores if os.getpid() in _ancestors(pid, parents)]


def _processes() -> list[list[str]]:
    lines = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    return [line.split(None, 2) for line in lines.splitlines()]


def _parents() -> dict[int, int]:
    return {int(pid): int(parent) for pid, parent, *_ in _processes()}


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while pid in parents and pid not in found:
        found.add(pid)
        pid = parents[pid]
    return found | {pid}


def kill_executor() -> None:
    os.kill(executors()[0], signal.SIGKILL)


def require(what: str) -> None:
    if what == "worker" and _workers is None:
        pytest.skip("there are no workers: --storage has a standalone cluster")


def replace_worker() -> None:
    """Kills a worker with its executor, as a lost machine would be, and starts another one."""
    assert _workers is not None
    lost = _nodes.pop()
    of_it = [pid for pid in executors() if lost.pid in _ancestors(pid, _parents())]
    for pid in (lost.pid, *of_it):
        os.kill(pid, signal.SIGKILL)
    lost.wait(30)
    _nodes.append(_workers())


LOSSES = {"executor": kill_executor, "worker": replace_worker}
