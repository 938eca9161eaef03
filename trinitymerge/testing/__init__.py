"""Tools to test merges: a reference interpreter, Hypothesis strategies and assertions.

Imports neither Spark nor Hypothesis. ``trinitymerge.testing.strategies`` needs the ``hypothesis`` package, which
``pip install '.[testing]'`` in a clone brings along.

Example:
    >>> from trinitymerge.schema.definition import Field, TableDefinition
    >>> from trinitymerge.merge.model.clauses import All, Insert, WhenNotMatched
    >>> from trinitymerge.testing import ModelTable
    >>> columns = [Field("id", "long"), Field("v", "string")]
    >>> table = ModelTable(TableDefinition.of(columns, primaryKey="id"))
    >>> table.merge([{"id": 1, "v": "a"}], [WhenNotMatched(None, [Insert(All())])]).rowsInserted
    1
"""

from trinitymerge.testing.assertions import (
    ModelMerge,
    OrderDependence,
    TableMerge,
    assertClauseOrderIrrelevant,
    assertMerge,
    assertRows,
    clauseOrderDependence,
    renderDifference,
)
from trinitymerge.testing.case import MergeCase, to_engine
from trinitymerge.testing.model.expressions import Expr, KeyEquality
from trinitymerge.testing.model.merge import ModelResult
from trinitymerge.testing.model.table import ModelTable

__all__ = [
    "Expr",
    "KeyEquality",
    "MergeCase",
    "ModelMerge",
    "ModelResult",
    "ModelTable",
    "OrderDependence",
    "TableMerge",
    "assertClauseOrderIrrelevant",
    "assertMerge",
    "assertRows",
    "clauseOrderDependence",
    "renderDifference",
    "to_engine",
]
