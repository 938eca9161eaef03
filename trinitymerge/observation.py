"""Aggregates gathered by a job that runs anyway (Spark's ``Dataset.observe``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from trinitymerge import jvm
from trinitymerge.definition import HIDDEN_PREFIX

_METRICS = HIDDEN_PREFIX + "metrics"


@attrs.frozen
class Gathering:
    """Named aggregates over the rows of a DataFrame.

    They travel as one JSON text, because every column of an observation costs several calls to the JVM. So they must be
    numbers, booleans or strings.

    Attributes:
        metrics: names and aggregates, as SQL.
    """

    metrics: Mapping[str, str]
    _observation: Observation = attrs.field(factory=Observation, init=False, repr=False)

    def over(self, df: DataFrame) -> DataFrame:
        """The rows, watched: to be used once."""
        parts = ", ".join(f"'{name}', {value}" for name, value in self.metrics.items())
        text = F.expr(f"to_json(named_struct({parts}), map('ignoreNullFields', 'false'))")
        return df.observe(self._observation, text.alias(_METRICS))

    def result(self) -> dict[str, Any]:
        """The values, null ones included; waits for the job that uses the rows."""
        found: dict[str, Any] = json.loads(jvm.observed(self._observation, _METRICS))
        return found
