"""A Kafka broker on this machine, for `make test-kafka`. Its jars, and those of Spark's source, come from Maven Central."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import pyspark
from maven import ROOT, jars
from processes import free_port

JARS = ROOT / ".kafka"
OLDER = ("4.2.0", "4.0.0")
"""Versions of Spark's source that are tried if that of the installed Spark is not to be had."""


def spark_jars() -> str:
    """The jars of Spark's Kafka source, as ``spark.jars``."""
    return ",".join(map(str, jars(JARS, "kafka", "spark", "spark.version", pyspark.__version__, *OLDER)))


@attrs.frozen
class Broker:
    """A broker that runs.

    Attributes:
        address: as ``host:port``.
        classpath: of its tools.
    """

    address: str
    classpath: str

    def topics(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run the tool for topics."""
        return self._tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address, *arguments)

    def _tool(self, name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        command: Sequence[str] = ["java", "-Xmx128m", "-cp", self.classpath, name, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def broker(directory: Path) -> Iterator[Broker]:
    """A broker in KRaft mode, with its files in a directory."""
    classpath = ":".join(map(str, jars(JARS, "kafka", "broker")))
    port, controller = free_port(), free_port()
    properties = directory / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n"
        f"log.dirs={directory / 'logs'}\noffsets.topic.replication.factor=1\n"
    )
    found = Broker(f"127.0.0.1:{port}", classpath)
    made = found._tool("kafka.tools.StorageTool", "format", "-t", "9g0mwrzJSoKOFMMM3lTtVg", "-c", properties)
    assert made.returncode == 0, made.stderr
    with (directory / "broker.log").open("w") as log:
        command = ["java", "-Xmx768m", "-cp", classpath, "kafka.Kafka", str(properties)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while found.topics("--list").returncode:
            assert process.poll() is None, (directory / "broker.log").read_text()[-2000:]
            assert time.monotonic() < until, "the broker did not start"
        yield found
    finally:
        process.terminate()
        process.wait(30)
