"""The lane on real storage: the tables that tests make are on a server on this machine (`pytest --storage s3`, ...).

- `s3`: MinIO, which Go builds, through Hadoop's connector, which Maven fetches. The log uses Hadoop's conditional create.
- `boto3`: the same, and the log uses boto3, as with Hadoop before 3.4.2.
- `hdfs`: a name node and a data node of the session's Hadoop version, from Maven.
- `gs`: fake-gcs-server, which Go builds, through Google's connector, which Maven fetches.

Each listens on the loopback address and ends with the tests. With `--cluster` too, the session's executors belong to a standalone
cluster (`cluster.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Protocol
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape
from zlib import crc32

import attrs
import processes
import pyspark
import pytest
import tables
from maven import ROOT, jars
from processes import run_logged, wait_for
from proxy import Proxy

KINDS = ("s3", "boto3", "hdfs", "gs")

LANE = {
    "test_contract.py": 1,
    "test_crashes.py": 4,
    "test_merge.py": 12,
    "test_strategies.py": 12,
    "test_executor.py": 8,
    "test_lookup.py": 4,
    "test_reader.py": 8,
    "test_key_ranges.py": 8,
    "test_maintenance.py": 12,
    "test_minor_compaction.py": 8,
    "test_segments.py": 8,
    "test_deletion_vectors.py": 6,
    "test_clone.py": 3,
    "test_changes.py": 8,
    "test_outbox.py": 12,
    "test_streaming.py": 6,
}
"""Files whose tests write and read the files of tables, and the share that runs: one in so many, chosen by name."""

LANE_OF_BOTO3 = {"test_log.py": 1}
"""More for the log through boto3."""

KEPT = ROOT / ".storage"
"""Where servers and jars are kept."""

MINIO = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"
FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
BUCKET = "lake"
KEY, SECRET = "minio", "not a secret"

RELAYED = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
HIDDEN = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}


class Server(Protocol):
    """A storage server that can be killed and started again with what it holds.

    Attributes:
        root: the directory for the tables of tests.
    """

    root: str

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def settings(self) -> dict[str, str]:
        """Return those of a session that uses it."""
        ...


@attrs.define(slots=False)
class Minio:
    """MinIO with one bucket, and a proxy before it that counts requests."""

    home: Path
    is_conditional: bool = True
    port: int = attrs.field(factory=processes.free_port)
    root: str = f"s3a://{BUCKET}/tables"
    _process: subprocess.Popen[bytes] | None = None

    @cached_property
    def proxy(self) -> Proxy:
        return Proxy(self.port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.proxy.port}"

    def start(self) -> None:
        command = [
            str(server("minio", MINIO)),
            "server",
            "--quiet",
            "--address",
            f"127.0.0.1:{self.port}",
            str(self.home / "minio"),
        ]
        environment = {**os.environ, "MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off"}
        self._process = run_logged(command, self.home / "minio.log", environment)
        wait_for(self.port, self._process, self.home / "minio.log")
        for name, value in {**RELAYED, **HIDDEN, "AWS_ENDPOINT_URL": self.url, "NO_PROXY": "127.0.0.1"}.items():
            os.environ[name] = value
        client = import_module("boto3").client("s3")
        if not client.list_buckets()["Buckets"]:
            client.create_bucket(Bucket=BUCKET)

    def kill(self) -> None:
        _kill(self._process)

    def directory(self) -> object:
        """Return an unused directory, for boto3."""
        return import_module("s3server").S3Path(f"{self.root}/{uuid.uuid4().hex} %20+ü")

    def settings(self) -> dict[str, str]:
        return settings_of_s3(self.url, self.is_conditional)


def settings_of_s3(url: str, is_conditional: bool = True) -> dict[str, str]:
    """Return the settings of a session that uses an S3 server."""
    own = {
        "endpoint": url,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": KEY,
        "secret.key": SECRET,
        "create.conditional.enabled": str(is_conditional).lower(),
        "attempts.maximum": "3",
        "retry.limit": "4",
    }
    version = hadoop_version()
    found = jars(KEPT, "hadoop", "s3" if version >= "3.4" else "s3-old", "hadoop.version", version)
    return {"spark.jars": ",".join(map(str, found)), **{f"spark.hadoop.fs.s3a.{k}": v for k, v in own.items()}}


@attrs.define
class Hdfs:
    """A name node and a data node; to kill the server is to kill the name node."""

    directory: Path
    port: int = attrs.field(factory=processes.free_port)
    _nodes: dict[str, subprocess.Popen[bytes]] = attrs.field(factory=dict)

    @property
    def root(self) -> str:
        return f"hdfs://127.0.0.1:{self.port}/tables"

    def start(self) -> None:
        if not self._nodes:
            self._configure()
            assert self._command("namenode.NameNode", "-format").wait(120) == 0, self._told("NameNode")
        self._nodes["NameNode"] = self._command("namenode.NameNode")
        wait_for(self.port, self._nodes["NameNode"], self.directory / "NameNode.log")
        if "DataNode" not in self._nodes:
            self._nodes["DataNode"] = self._command("datanode.DataNode")

    def kill(self) -> None:
        _kill(self._nodes["NameNode"])

    def stop(self) -> None:
        for node in self._nodes.values():
            _kill(node)

    def settings(self) -> dict[str, str]:
        names = {
            # The client asks again while the name node is away, and finds it again after it has come back.
            "dfs.client.retry.policy.enabled": "true",
            "dfs.client.retry.policy.spec": "500,60",
            # Closing a file asks whether its block has been reported, and waits before it asks again: 0.4 s by default.
            "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
            "dfs.replication": "1",
        }
        return {f"spark.hadoop.{name}": value for name, value in names.items()}

    def _configure(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        values = {
            "fs.defaultFS": f"hdfs://127.0.0.1:{self.port}",
            "dfs.namenode.rpc-address": f"127.0.0.1:{self.port}",
            "dfs.namenode.http-address": "127.0.0.1:0",
            "dfs.namenode.name.dir": f"file://{self.directory}/name",
            "dfs.datanode.data.dir": f"file://{self.directory}/data",
            **dict.fromkeys(
                ("dfs.datanode.address", "dfs.datanode.ipc.address", "dfs.datanode.http.address"), "127.0.0.1:0"
            ),
            "dfs.replication": "1",
            "dfs.permissions.superusergroup": "root",
            "dfs.namenode.safemode.extension": "0",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        }
        entries = [f"<property><name>{n}</name><value>{escape(v)}</value></property>" for n, v in values.items()]
        (self.directory / "hdfs-site.xml").write_text(f"<configuration>{''.join(entries)}</configuration>")
        (self.directory / "core-site.xml").write_text(f"<configuration>{entries[0]}</configuration>")

    def _command(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        found = [str(self.directory), *map(str, jars(KEPT, "hadoop", "hdfs", "hadoop.version", hadoop_version()))]
        command = ["java", "-Xmx256m", "-cp", ":".join(found), f"org.apache.hadoop.hdfs.server.{name}", *arguments]
        return run_logged(command, self.directory / f"{name.rpartition('.')[2]}.log", dict(os.environ))

    def _told(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()[-2000:]


@attrs.define
class Gcs:
    """A server that answers as Google Cloud Storage does, with one bucket. What it holds is gone if it is killed."""

    directory: Path
    port: int = attrs.field(factory=processes.free_port)
    root: str = f"gs://{BUCKET}/tables"
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        own = {
            "scheme": "http",
            "host": "127.0.0.1",
            "port": self.port,
            "external-url": self.url,
            "public-host": self.url.removeprefix("http://"),
            "backend": "memory",
        }
        command = [server("fake-gcs-server", FAKE_GCS), *(part for n, v in own.items() for part in (f"-{n}", v))]
        self._process = run_logged(list(map(str, command)), self.directory / "gcs.log", dict(os.environ))
        wait_for(self.port, self._process, self.directory / "gcs.log")
        bucket, kind = json.dumps({"name": BUCKET}).encode(), {"Content-Type": "application/json"}
        urlopen(Request(f"{self.url}/storage/v1/b?project=none", bucket, kind)).close()

    def kill(self) -> None:
        _kill(self._process)

    def settings(self) -> dict[str, str]:
        own = {
            "impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
            "storage.root.url": self.url,
            "auth.service.account.enable": "false",
            "auth.null.enable": "true",
            "project.id": "none",
            # Hadoop 3.5 has defaults for another connector, such as "64m", which Google's cannot read.
            "block.size": str(64 << 20),
            "outputstream.buffer.size": str(8 << 20),
            "inputstream.inplace.seek.limit": str(8 << 20),
            "inputstream.min.range.request.size": str(2 << 20),
            "rewrite.max.chunk.size": str(512 << 20),
        }
        (jar,) = jars(KEPT, "hadoop", "gs")
        settings = {f"spark.hadoop.fs.gs.{name}": value for name, value in own.items()}
        return {"spark.jars": str(jar), "spark.hadoop.fs.AbstractFileSystem.gs.impl": GCS_FOR_CONTEXTS, **settings}


GCS_FOR_CONTEXTS = "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS"


def hadoop_version() -> str:
    """The version of Hadoop's client that Spark brings."""
    (found,) = (Path(pyspark.__path__[0]) / "jars").glob("hadoop-client-api-*.jar")
    return found.stem.rpartition("-")[2]


def server(name: str, module: str) -> Path:
    """A server, which is built when it is needed first."""
    found, built = shutil.which(name), KEPT / name
    if found or built.exists():
        return Path(found or built)
    if shutil.which("go") is None:
        pytest.skip(f"there is neither {name} nor Go, which builds it")
    environment = {**os.environ, "GOBIN": str(KEPT), "CGO_ENABLED": "0"}
    done = subprocess.run(
        ["go", "install", module], capture_output=True, text=True, env=environment, timeout=1200, check=False
    )
    if done.returncode:
        pytest.skip(f"Go cannot build {name}: {done.stderr[-300:]}")
    return built


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.kill()
        process.wait(30)


# The lane -----------------------------------------------------------------------------------------------------------

running: Server | None = None
"""The server of this run."""


def start(kind: str, directory: Path) -> Server:
    """Start the server, and make tables on it from now on."""
    global running
    kinds = {"hdfs": Hdfs, "gs": Gcs}
    running = kinds[kind](directory) if kind in kinds else Minio(directory, is_conditional=kind == "s3")
    running.start()
    tables.ROOT = running.root
    processes.plans |= running.settings()
    return running


def stop() -> None:
    global running
    if isinstance(running, Hdfs):
        running.stop()
    elif running is not None:
        running.kill()
    running = tables.ROOT = None


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the lane's tests; on a cluster, those of clusters have been chosen."""
    if config.getoption("--cluster"):
        return
    lane = LANE | (LANE_OF_BOTO3 if config.getoption("--storage") == "boto3" else {})
    chosen = [item for item in items if _is_chosen(item, lane)]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def _is_chosen(item: pytest.Item, lane: Mapping[str, int]) -> bool:
    names, share = getattr(item, "fixturenames", ()), lane.get(item.path.name)
    is_of_lane = share is not None and "kind" not in names and crc32(item.name.encode()) % share == 0
    is_of_contract = item.path.name == "test_local.py" and "storage" in names
    return is_of_lane or is_of_contract or item.get_closest_marker("storage") is not None
