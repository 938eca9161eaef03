"""The one Spark session of a run, and what the report says about machine and versions.

Ours, plain Spark and Iceberg share the session, so that they run in turns in one warm JVM with the same settings.
"""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from benchmarks.race import settle_disk
from benchmarks.sizes import Size

ICEBERG_CATALOG = "ice"

JARS = Path(__file__).parent.parent / ".bench-jars"
"""The jars of Iceberg and Delta Lake for Spark 4, which Maven fetches (`make bench-spark40`)."""

_COMPILED_CLASSES = "spark.sql.codegen.cache.maxEntries"
"""Spark keeps the last 100 classes it has compiled. Contestants that take turns throw each other's away, and would compile and warm
up anew in each turn: nobody's pipeline does that (docs/scale.md, "A setting that pays")."""


_ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_DELTA_EXTENSIONS = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
_FOR_DELTA = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta Lake reads its log in 50 tasks by default: too many for two cores.
    _DELTA_PARTITIONS: "2",
}


def start(size: Size, work: Path) -> SparkSession:
    """Starts Spark on all cores of this machine.

    Args:
        size: for the JVM's memory.
        work: where tables and temporary files go.
    """
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    catalog = f"spark.sql.catalog.{ICEBERG_CATALOG}"
    config = {
        "spark.driver.memory": size.driver_memory,
        _COMPILED_CLASSES: "2000",
        "spark.driver.extraClassPath": ":".join(map(str, peers())),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={work} -Duser.timezone=UTC",
        "spark.sql.catalogImplementation": "in-memory",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": str(work / "iceberg"),
        "spark.sql.extensions": ",".join([_ICEBERG_EXTENSIONS, *([_DELTA_EXTENSIONS] if has_delta() else [])]),
        **(_FOR_DELTA if has_delta() else {}),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(2 * cores()),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(f"local[{cores()}]").appName("trinitymerge benchmarks")
    for name, value in config.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peers() -> list[Path]:
    """The jars of the peers for the Spark of this environment: from PyPI for 3.5, and from Maven for 4.0."""
    if pyspark.__version__.startswith("4.0"):
        return sorted(JARS.glob("*.jar"))
    package = import_module("snowpark_connect_deps_iceberg")
    return [*(Path(str(package.__file__)).parent / "jars").glob("iceberg-spark-runtime-3.5_2.12-*.jar")]


def has_delta() -> bool:
    """True if Delta Lake is among the peers."""
    return any(jar.name.startswith("delta-spark") for jar in peers())


def _version(jar: str) -> str:
    """The version of a peer, from the name of its jar."""
    return next(j.stem.rsplit("-", 1)[-1] for j in peers() if j.name.startswith(jar))


def settle(spark: SparkSession) -> None:
    """Rest before a timed run: no dirty pages of another's files, no garbage of another's job."""
    settle_disk()
    spark.sparkContext._jvm.System.gc()


# What the report says -------------------------------------------------------------------------------------------------


def context(spark: SparkSession, command: str) -> dict[str, Any]:
    """Machine, versions and command, as they stand in the report."""
    java = spark.sparkContext._jvm.System.getProperty("java.version")
    settings = spark.sparkContext.getConf()
    return {
        "command": command,
        "machine": f"{_processor()}, {cores()} cores, {_memory()} memory, {platform.system()}",
        "versions": {
            "trinitymerge": _ours(),
            "PySpark": spark.version,
            "Iceberg": _version("iceberg-spark-runtime"),
            **({"Delta Lake": _version("delta-spark")} if has_delta() else {}),
            "DuckDB": metadata.version("duckdb"),
            "delta-rs": metadata.version("deltalake"),
            "Python": platform.python_version(),
            "Java": java,
        },
        "Spark session": f"{settings.get('spark.master')}, driver memory {settings.get('spark.driver.memory')}, "
        f"{settings.get('spark.sql.shuffle.partitions')} shuffle partitions, {_COMPILED_CLASSES}="
        f"{settings.get(_COMPILED_CLASSES)} (docs/scale.md says why), "
        f"{f'{_DELTA_PARTITIONS}={settings.get(_DELTA_PARTITIONS)}, ' if has_delta() else ''}everything else as it comes; "
        "shared by trinitymerge, plain Spark and the peers in Spark",
    }


def load_average() -> str:
    """What else the machine was doing, as a section begins."""
    return f"{os.getloadavg()[0]:.1f}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"


def _ours() -> str:
    """The version of the package: the commit of the working tree, marked where files of the package have changed since."""
    root = Path(__file__).parent.parent
    try:
        commit = _git(root, "describe", "--always", "--exclude=*")
        return f"{commit}-dirty" if _git(root, "status", "--porcelain", "--", "trinitymerge") else commit
    except (OSError, subprocess.CalledProcessError):
        return metadata.version("trinitymerge")


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()
