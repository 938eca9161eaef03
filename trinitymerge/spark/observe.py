"""Aggregates that a job collects while it runs, each row counted once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from trinitymerge.spark import session
from trinitymerge.spark.system_columns import METRICS


@attrs.frozen
class Metrics:
    """Named aggregates over the rows of a DataFrame.

    They travel as one JSON text, because every column of an observation costs several calls to the JVM. So they must be
    numbers, booleans or strings.

    Attributes:
        metrics: names and aggregates, as SQL.
    """

    metrics: Mapping[str, str]
    _observation: Observation = attrs.field(factory=Observation, init=False, repr=False)

    def observe(self, df: DataFrame) -> DataFrame:
        """The rows, watched: to be used once."""
        return df.observe(self._observation, self._text())

    def collect(self, rows: DataFrame | None = None) -> dict[str, Any]:
        """The values, null ones included; waits for the job that uses the rows.

        Args:
            rows: the same rows, where they are kept: asked if the job has brought no values along, as a checkpoint does
                not on Spark Connect.

        Raises:
            RuntimeError: there are no values, and no rows to ask.
        """
        text = session.observed(self._observation, METRICS)
        if text is None and rows is not None:
            return self.compute(rows)
        if text is None:
            raise RuntimeError("Spark has run a job without handing over what was observed in it.")
        found: dict[str, Any] = json.loads(text)
        return found

    def compute(self, rows: DataFrame) -> dict[str, Any]:
        """The values of some rows, in a job of its own."""
        found: dict[str, Any] = json.loads(rows.agg(self._text()).collect()[0][0])
        return found

    def _text(self) -> Column:
        parts = ", ".join(f"'{name}', {value}" for name, value in self.metrics.items())
        return F.expr(f"to_json(named_struct({parts}), map('ignoreNullFields', 'false'))").alias(METRICS)
