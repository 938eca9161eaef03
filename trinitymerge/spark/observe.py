"""Aggregates that a Spark job observes while it runs, each row counted once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame, Observation, functions as F

from trinitymerge.spark import session, system_columns as C


@attrs.frozen
class Metrics:
    """Named aggregates, as SQL, over the rows of a DataFrame: numbers, booleans or strings.

    They are one JSON text, because every column of an observation costs several JVM calls.
    """

    metrics: Mapping[str, str]
    _observation: Observation = attrs.field(factory=Observation, init=False, repr=False)

    def observe(self, df: DataFrame) -> DataFrame:
        """Return the rows with the observation attached; use them in one job."""
        return df.observe(self._observation, self._text())

    def collect(self, rows: DataFrame | None = None) -> dict[str, Any]:
        """Wait for the job that uses the observed rows, and return the values, nulls included.

        The materialized ``rows`` are aggregated if the job returned no values (as a checkpoint on Spark Connect does not).
        """
        text = session.observed(self._observation, C.METRICS)
        if text is None:
            if rows is None:
                raise RuntimeError("Spark ran a job without returning its observed metrics.")
            return self.compute(rows)
        found: dict[str, Any] = json.loads(text)
        return found

    def compute(self, rows: DataFrame) -> dict[str, Any]:
        """Aggregate rows in a separate job, and return the values."""
        found: dict[str, Any] = json.loads(rows.agg(self._text()).collect()[0][0])
        return found

    def _text(self) -> Column:
        parts = ", ".join(f"'{name}', {value}" for name, value in self.metrics.items())
        return F.expr(f"to_json(named_struct({parts}), map('ignoreNullFields', 'false')) AS {C.METRICS}")
