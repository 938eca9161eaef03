"""Which store a path or table name belongs to."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from trinitymerge._package import registered, registered_names
from trinitymerge.errors import TableNotFoundError, UnsupportedStorageError
from trinitymerge.stores.base import CatalogStore, TableStore
from trinitymerge.stores.catalog import CatalogTable
from trinitymerge.stores.iceberg import IcebergStore
from trinitymerge.stores.managed import DirectoryStore

CATALOG_STORES: dict[str, Callable[[SparkSession, str], CatalogStore]] = {"iceberg": IcebergStore}
"""The stores of catalog tables, by the format that the catalog names (``USING``). All other tables are managed.

Other packages add stores as entry points (:mod:`trinitymerge._package`).
"""

_GROUP = "trinitymerge.stores"
_NAMED = "catalog:"


def open_store(spark: SparkSession, path: str, using: str | None = None) -> TableStore:
    """Return the store at a path or of :func:`store_uri`, or, using a format, of a name in a catalog, whether it exists or not."""
    if using is None and path.startswith(_NAMED):
        return open_catalog_store(spark, path.removeprefix(_NAMED))
    if using is None:
        return DirectoryStore(spark, path)
    return _store_of(using)(spark, path)


def store_uri(store: TableStore) -> str:
    """Return the address of a store, with which :func:`open_store` finds it in another session."""
    return f"{_NAMED}{store.path}" if isinstance(store, CatalogStore) else store.path


def open_catalog_store(spark: SparkSession, name: str) -> CatalogStore:
    table = CatalogTable(spark, name)
    if not table.exists():
        raise TableNotFoundError(
            f"There is no table '{table.shown}'. Check the name, or create one with TrinityTable.create.",
            path=table.shown,
        )
    return _store_of(table.format(), table.shown)(spark, name)


def _store_of(file_format: str, table: str = "") -> Callable[[SparkSession, str], CatalogStore]:
    store = registered(_GROUP, CATALOG_STORES, file_format.lower(), None)
    if store is None:
        what = f"'{table}' is a table of the format" if table else "There is no store for the format"
        known = ", ".join(f"'{name}'" for name in registered_names(_GROUP, CATALOG_STORES))
        raise UnsupportedStorageError(
            f"{what} '{file_format}'. trinitymerge merges into managed tables and tables of the format {known}, not into plain "
            "tables. TrinityTable.convert(...) makes a managed table of an existing one; TrinityTable.external(...) reads it. "
            "Nothing was written.",
            path=table,
            format=file_format,
        )
    return store
