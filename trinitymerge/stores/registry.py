"""Which store a path or table name belongs to, and calls that a store does not support."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs
from pyspark.sql import SparkSession

from trinitymerge.errors import UnsupportedStorageError
from trinitymerge.stores.base import CompactableStore, ManagedStore, OutboxStore, TableStore, VersionedStore
from trinitymerge.stores.catalog import SPARKS_OWN, CatalogTable
from trinitymerge.stores.catalog_files import FORMATS, PlainBackend
from trinitymerge.stores.iceberg import IcebergBackend
from trinitymerge.stores.managed import ManagedBackend

_NAMED = "catalog:"

InCatalogs: TypeAlias = IcebergBackend | PlainBackend
"""The stores of tables that a catalog has, which their names stand for."""


@attrs.frozen
class CatalogFormat:
    """How a catalog keeps tables.

    Attributes:
        store: its class.
        names: what ``using`` calls it.
        made: a store, of a session, a name and the format.
        lacking: why it has no methods for looking after its files, and what to do instead; continues "its store".
    """

    store: type[InCatalogs]
    names: tuple[str, ...]
    made: Callable[[SparkSession, str, str], InCatalogs]
    lacking: str


_ICEBERGS = CatalogFormat(
    IcebergBackend,
    ("iceberg",),
    lambda spark, name, _: IcebergBackend(spark, name),
    "looks after its files itself. Use its own means for that.",
)
_PLAIN = CatalogFormat(
    PlainBackend,
    FORMATS,
    PlainBackend,
    "keeps no record of its files, which others may change. Write toDF() to another table, or make a managed table of it "
    "with TrinityTable.convert.",
)
CATALOG_FORMATS = (_ICEBERGS, _PLAIN)
"""All of them. Tables that no catalog has are managed."""


def open_store(spark: SparkSession, path: str, using: str | None = None) -> TableStore:
    """The store of the table at a path, or of a name in a catalog, whether or not there is one yet.

    Args:
        spark: the session.
        path: of a managed table; if a format is given, a table's name; or what :func:`store_uri` gave.
        using: the format of a table in a catalog; None for managed tables.

    Raises:
        UnsupportedStorageError: no store can keep a table there (S33), or there is none for the format.
        ValueError: the name is none.
    """
    if using is None and path.startswith(_NAMED):
        return open_catalog_store(spark, path.removeprefix(_NAMED))
    if using is None:
        return ManagedBackend(spark, path)
    for each in CATALOG_FORMATS:
        if using.lower() in each.names:
            return each.made(spark, path, using.lower())
    known = ", ".join(f"'{name}'" for each in CATALOG_FORMATS for name in each.names)
    raise UnsupportedStorageError(
        f"There is no store for tables of the format '{using}'. Take one of {known}, or leave using out for a "
        "managed table at a path.",
        format=using,
    )


def store_uri(store: TableStore) -> str:
    """What :func:`open_store` finds a store by in another session, or years later: text, which a session is not."""
    return store.path if _format_of(store) is None else f"{_NAMED}{store.path}"


def open_catalog_store(spark: SparkSession, name: str) -> InCatalogs:
    """The store of a table that a catalog has.

    Raises:
        TableNotFoundError: it has none of that name.
        UnsupportedStorageError: the table is of a format that there is no store for.
        ValueError: the name is none.
    """
    table = CatalogTable(spark, name)
    is_icebergs = table.parts[0] != SPARKS_OWN or (
        table.exists() and table.described().get("Provider", "").lower() == "iceberg"
    )
    found = _ICEBERGS if is_icebergs else _PLAIN
    store = found.made(spark, name, found.names[0])
    store.require_table()
    return store


def _format_of(store: TableStore) -> CatalogFormat | None:
    return next((each for each in CATALOG_FORMATS if isinstance(store, each.store)), None)


def time_travel(store: TableStore, call: str) -> VersionedStore:
    """The store, for a call that needs past versions (S40).

    Args:
        store: of the table.
        call: what the user has called, for the message.

    Raises:
        UnsupportedStorageError: naming the call and the store.
    """
    if not isinstance(store, VersionedStore):
        raise _unsupported(store, call, "keeps no past versions. Only the newest one can be read.")
    return store


def maintained(store: TableStore, call: str) -> ManagedStore:
    """The store, for a call that looks after its files (S38-S40).

    Args:
        store: of the table.
        call: what the user has called, for the message.

    Raises:
        UnsupportedStorageError: naming the call and the store.
    """
    if not isinstance(store, ManagedStore):
        raise _unsupported(store, call, _lacking(store))
    return store


def replacing(store: TableStore, call: str) -> CompactableStore:
    """The store, for a call that replaces batches by what they come to (S38).

    Args:
        store: of the table.
        call: what the user has called, for the message.

    Raises:
        UnsupportedStorageError: naming the call and the store.
    """
    if not isinstance(store, CompactableStore):
        raise _unsupported(store, call, _lacking(store))
    return store


def lending(store: TableStore, call: str) -> OutboxStore:
    """The store, for a merge that has rows for other tables (S27).

    Args:
        store: of the table that is merged into.
        call: what the user has called, for the message.

    Raises:
        UnsupportedStorageError: naming the call and the store.
    """
    if not isinstance(store, OutboxStore):
        raise _unsupported(
            store,
            call,
            "cannot keep the rows for the other table until they are written there. Merge into a managed table.",
        )
    return store


def _lacking(store: TableStore) -> str:
    kind = _format_of(store)
    return "has no methods for that." if kind is None else kind.lacking


def _unsupported(store: TableStore, call: str, why: str) -> UnsupportedStorageError:
    kind = type(store).__name__
    return UnsupportedStorageError(
        f"{call} is not possible for {store.path}: its store ({kind}) {why}", call=call, store=kind, path=store.path
    )
