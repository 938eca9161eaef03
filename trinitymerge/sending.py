"""How many rows are sent to every task that scans a table, instead of shuffling the table (S13).

Owns: that number for reads, which send keys with their watermarks; a merge sends keys, or its source, up to a number of its own
(``merge/compile/sides.py``), as a comparison of versions does (``history/changes.py``). Sent rows stand in the memory of the
driver and of every executor: a key and a watermark take some hundred bytes there.
"""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

FEW_ROWS = 1_000_000
"""As many are sent whatever memory there is."""

ROWS_PER_GIGABYTE = 500_000
"""More are sent for each gigabyte. Twice as many fit; but then little is left for anything else, and shuffling is as fast."""

MOST_ROWS = 4_000_000
"""What tasks give back to the driver is limited as well, to a gigabyte (``spark.driver.maxResultSize``)."""

_MEMORY = re.compile(r"(\d+)\s*([kmgtp]?)b?", re.IGNORECASE)
_BYTES = {"": 2**20, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}  # a number alone is in megabytes


def may_be_sent(spark: SparkSession, rows: int, times: int = 1) -> bool:
    """True if so many keys with their watermarks may be sent, as many times as is said."""
    return rows <= FEW_ROWS or rows * times <= min(MOST_ROWS, int(ROWS_PER_GIGABYTE * _gigabytes(spark)))


def _gigabytes(spark: SparkSession) -> float:
    """The memory of the driver, or of an executor if that is less. Where Spark does not tell, its default."""
    of_driver, of_executor = (_memory(spark, f"spark.{who}.memory") for who in ("driver", "executor"))
    master = str(spark.conf.get("spark.master", ""))
    in_driver = master.startswith("local") and not master.startswith("local-cluster")
    return (of_driver if in_driver else min(of_driver, of_executor)) / 2**30


def _memory(spark: SparkSession, setting: str) -> int:
    found = _MEMORY.fullmatch(str(spark.conf.get(setting, "1g")).strip())
    return int(found[1]) * _BYTES[found[2].lower()] if found else 2**30
