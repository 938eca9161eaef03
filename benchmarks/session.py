"""The one Spark session of a run, and what the report says about machine and versions.

Ours, plain Spark and Iceberg share the session, so that they run in turns in one warm JVM with the same settings.
"""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import snowpark_connect_deps_iceberg
from pyspark.sql import SparkSession

from benchmarks.race import settle_disk
from benchmarks.sizes import Size

ICEBERG_CATALOG = "ice"

_COMPILED_CLASSES = "spark.sql.codegen.cache.maxEntries"
"""Spark keeps the last 100 classes it has compiled. Contestants that take turns throw each other's away, and would compile and warm
up anew in each turn: nobody's pipeline does that (docs/scale.md, "A setting that pays")."""


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
        "spark.driver.extraClassPath": str(iceberg_jar()),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={work} -Duser.timezone=UTC",
        "spark.sql.catalogImplementation": "in-memory",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": str(work / "iceberg"),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
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


def iceberg_jar() -> Path:
    """Iceberg's runtime for the Spark and Scala of this environment."""
    jars = Path(snowpark_connect_deps_iceberg.__file__).parent / "jars"
    (jar,) = jars.glob("iceberg-spark-runtime-3.5_2.12-*.jar")
    return jar


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
            "Iceberg": iceberg_jar().stem.rsplit("-", 1)[-1],
            "DuckDB": metadata.version("duckdb"),
            "delta-rs": metadata.version("deltalake"),
            "Python": platform.python_version(),
            "Java": java,
        },
        "Spark session": f"{settings.get('spark.master')}, driver memory {settings.get('spark.driver.memory')}, "
        f"{settings.get('spark.sql.shuffle.partitions')} shuffle partitions, {_COMPILED_CLASSES}="
        f"{settings.get(_COMPILED_CLASSES)} (docs/scale.md says why), everything else as it comes; shared by "
        "trinitymerge, plain Spark and Iceberg",
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
