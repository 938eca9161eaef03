"""Avro messages of Kafka Connect, with the ids of their schemas, become JSON messages with these schemas."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from pyspark.sql import DataFrame, types as T

from trinitymerge.errors import InvalidMergeError, MissingPackageError, missing
from trinitymerge.spark.sql_text import Sql

BROKEN, NO_SCHEMA = "__not_avro", "__no_schema"
"""The keys of the JSON that stands for messages that cannot be read."""

NOT_AVRO = Sql(f"startswith(value, '{{\"{BROKEN}\"')")
UNKNOWN_SCHEMA = Sql(f"startswith(value, '{{\"{NO_SCHEMA}\"')")

_HEADER_BYTES = 5
"""A zero, and the id of the schema in four bytes."""

_TIMEOUT_SECONDS = 30
_TYPES = {"int": "int32", "long": "int64", "enum": "string", "fixed": "bytes", "record": "struct"}
"""Kafka Connect's names of Avro types; others have the same."""

_Finder = Callable[[int], str | None]


def json_of_avro(frame: DataFrame, registry: str | Mapping[int, str], call: str) -> DataFrame:
    """Return messages whose ``value`` and ``key`` are JSON text instead of Avro, lazily. A Python worker reads them."""
    if not isinstance(registry, (str, Mapping)):
        raise InvalidMergeError(f"{call}: registry takes an address or a mapping of ids to schemas, got {registry!r}.")
    for package in ("fastavro", "pyarrow"):
        try:
            import_module(package)
        except ImportError as error:
            raise MissingPackageError(
                f"{call}: Avro needs the package {package}, here and on all executors. Run: pip install 'trinitymerge[avro]'",
                package=package,
            ) from error
    if "value" not in frame.columns:
        raise InvalidMergeError(f"{call} needs a column 'value'. {missing(['value'], 'the DataFrame', frame.columns)}")
    if not isinstance(frame.schema["value"].dataType, T.BinaryType):
        kind = frame.schema["value"].dataType.simpleString()
        raise InvalidMergeError(f"{call}: Avro messages are binary, and the column 'value' is {kind}.")
    fields = [T.StructField(f.name, T.StringType()) if f.name in ("value", "key") else f for f in frame.schema.fields]
    if isinstance(registry, str):
        find: _Finder = _of_address(registry, call)
    else:
        find = {int(number): schema for number, schema in registry.items()}.get

    def read(batches: Iterable[Any]) -> Iterator[Any]:
        arrow, text_of = import_module("pyarrow"), _reader(find)
        for batch in batches:
            columns = [*batch.columns]
            for i, name in enumerate(batch.schema.names):
                if name in ("value", "key"):
                    columns[i] = arrow.array([text_of(raw) for raw in columns[i].to_pylist()], arrow.string())
            yield arrow.RecordBatch.from_arrays(columns, names=batch.schema.names)

    return frame.mapInArrow(read, T.StructType(fields))


def _of_address(address: str, call: str) -> _Finder:
    """Return a function that asks a registry for a schema, by its id; None for an id that it does not know."""
    parts = urlsplit(address)
    login, _, host = parts.netloc.rpartition("@")
    base = urlunsplit(parts._replace(netloc=host)).rstrip("/")
    if parts.scheme not in ("http", "https") or not re.fullmatch(r"[^:@]+(:[0-9]+)?", host) or "@" in parts.path:
        raise InvalidMergeError(
            f"{call}: registry takes an address such as http://registry:8081. In a name or a password, write characters such as / "
            "and @ as %2F and %40."
        )
    headers = {"Authorization": f"Basic {_base64(unquote(login).encode())}"} if login else {}

    def find(number: int) -> str | None:
        request = urllib.request.Request(f"{base}/schemas/ids/{number}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
                return str(json.load(answer)["schema"])
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    return find


def _reader(find: _Finder) -> Callable[[bytes | None], str | None]:
    """Return a function from an Avro message to JSON text. It asks once for each schema."""
    avro = import_module("fastavro")

    @cache
    def schema(number: int) -> tuple[Any, Any] | None:
        text = find(number)
        if text is None:
            return None
        told = json.loads(text)
        return avro.parse_schema(_plain(told)), _connect_schema(told)

    def read(raw: bytes | None) -> str | None:
        if raw is None:
            return None
        if len(raw) < _HEADER_BYTES or raw[0]:
            return json.dumps({BROKEN: _base64(raw)})
        number = int.from_bytes(raw[1:_HEADER_BYTES], "big")
        found = schema(number)
        if found is None:
            return json.dumps({NO_SCHEMA: number, "raw": _base64(raw)})
        try:
            value = avro.schemaless_reader(io.BytesIO(raw[_HEADER_BYTES:]), found[0], None)
        except Exception:  # noqa: BLE001 - the bytes are not of this schema, however that shows
            return json.dumps({BROKEN: _base64(raw)})
        return json.dumps({"schema": found[1], "payload": _json_value(value)})

    return read


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _json_value(value: Any) -> Any:
    """Return a value as Kafka Connect writes it to JSON: bytes as base64, numbers that are none as text."""
    if isinstance(value, bytes):
        return _base64(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _json_value(v) for name, v in value.items()}
    return [_json_value(v) for v in value] if isinstance(value, list) else value


def _plain(schema: Any) -> Any:
    """Return an Avro schema without logical types: their values are then those of the message."""
    if isinstance(schema, list):
        return [_plain(s) for s in schema]
    if isinstance(schema, dict):
        return {key: _plain(v) if key != "default" else v for key, v in schema.items() if key != "logicalType"}
    return schema


def _connect_schema(schema: Any) -> dict[str, Any]:
    """Return the fields of a message as Kafka Connect's JSON says them: of ``after``, or of a message without an envelope."""
    named: dict[str, Any] = {}

    def known(told: Any, space: str = "") -> Any:
        """Return a type that is not a union with null, nor a reference."""
        if isinstance(told, list):
            told = next((t for t in told if t != "null"), "null")
        if isinstance(told, str):
            return named.get(told, named.get(f"{space}.{told}", {"type": told}))
        if "name" in told:
            space = told.get("namespace", space)
            named.setdefault(told["name"], told)
            named.setdefault(f"{space}.{told['name']}", told)
            for field in told.get("fields", ()):
                known(field["type"], space)
        if not isinstance(told.get("type"), (dict, list)):
            return told
        return known(told["type"], space) | {k: v for k, v in told.items() if k != "type"}

    def field(name: str, told: Any) -> dict[str, Any]:
        kind = known(told)
        shown = {"field": name, "type": kind.get("connect.type", _TYPES.get(kind["type"], kind["type"]))}
        if kind["type"] == "array":
            shown["items"] = {"type": field("", kind["items"])["type"]}
        if "connect.name" in kind:
            shown["name"] = kind["connect.name"]
        parameters = {k: str(v) for k, v in kind.get("connect.parameters", {}).items()}
        if kind.get("logicalType") == "decimal":
            parameters |= {"scale": str(kind.get("scale", 0)), "connect.decimal.precision": str(kind["precision"])}
        return {**shown, "parameters": parameters} if parameters else shown

    def fields(told: Any) -> list[dict[str, Any]]:
        return [field(f["name"], f["type"]) for f in known(told).get("fields", ())]

    rows = [f for f in known(schema).get("fields", ()) if f["name"] == "after"]
    if rows:
        return {"fields": [{"field": "after", "fields": fields(rows[0]["type"])}]}
    return {"fields": fields(schema)}
