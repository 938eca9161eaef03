"""S33, S34: whoever is killed, wherever, leaves the table as it was or as committed, and the next writer goes on.

Each case kills one process with SIGKILL at one fault point of one operation. ``STEPS`` says which points an operation
comes to, in order; tests hold that list against the code, so that no point is forgotten.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import tables
from helpers import quickly
from processes import fork, kill, start
from pyspark import SparkContext
from tables import batch_directories, copy_of, directory_of, fill, frame, live_rows, merge_into, new_table, set_default

import trinitymerge
from trinitymerge import TableNotFoundError, TrinityTable
from trinitymerge.fs import faults
from trinitymerge.maintenance import deletion_vectors, minor_compaction
from trinitymerge.schema.properties import CHECKPOINT_INTERVAL, TARGET_SEGMENT_BYTES
from trinitymerge.stores import iceberg

ROWS = "id INT, ts INT, v STRING, deleted BOOLEAN"
KEYS = {"watermarkKey": "ts", "tombstoneKey": "deleted"}

# The operations -------------------------------------------------------------------------------------------------------


def merge(spark, table):
    source = frame(spark, ROWS, (1, 50, "merged", False), (2, 50, None, True), (7, 50, "new", False))
    changed = table.merge(source).whenMatched("source.deleted").delete().whenMatched("target.v <> 'x'").updateAll()
    changed.whenNotMatched().insertAll().execute()


def remember(spark, table):
    """What is replaced goes into the table beside it."""
    past, keep = TrinityTable.forPath(spark, f"{table.path}-past"), {"id": "id", "v": "v"}
    changed = table.merge(frame(spark, ROWS, (1, 50, "merged", False), (2, 50, None, True)))
    changed = changed.whenMatched("source.deleted").delete().insertHistoryExpr(keep, past)
    changed.whenMatched().updateAll().insertHistoryExpr(keep, past).execute()


def reject(spark, table):
    """A row that breaks a rule goes into the quarantine beside the table."""
    source = frame(spark, ROWS, (1, 50, "merged", False), (None, 50, "no key", False))
    quarantine = TrinityTable.forPath(spark, f"{table.path}-past")
    table.merge(source).whenMatched().updateAll().whenNotMatched().insertAll().quarantine(quarantine).execute()


def compact(spark, table):
    table.compact()


def split(spark, table):
    with pytest.MonkeyPatch.context() as patched:
        set_default(patched, TARGET_SEGMENT_BYTES, "2000")
        table.compact(full=True)


def minor_compact(spark, table):
    snapshot = table._store.snapshot()
    minor_compaction.minor_compact(table._store, snapshot, snapshot.batches)


def compare(spark, table):
    deletion_vectors.make_deletion_vectors(table._store, table._store.snapshot())


def compact_versions(spark, table):
    table.compact()


def minor_compact_versions(spark, table):
    snapshot = table._store.snapshot()
    minor_compaction.minor_compact(table._store, snapshot, snapshot.live_batches[-2:])


def extract(spark, table):
    """A late one: it writes at its own moment and at the next."""
    table.snapshot(frame(spark, "id INT, v STRING", (1, "extracted"), (2, "a")), at=25).execute()


def switch(spark, table):
    table.alter().setHistory().execute()


def follow(spark, table):
    """The source brings a column that the table does not have, for rows that are there and for others."""
    source = frame(spark, f"{ROWS}, x STRING", (1, 50, "merged", False, "x"), (7, 50, "new", False, "y"))
    chain = table.merge(source).withSchemaEvolution()
    chain.whenMatched().updateAll().whenNotMatched().insertAll().execute()


def alter(spark, table):
    """A new column takes a name that another one had."""
    changes = table.alter().renameColumn("v", "w").addColumn("v", "INT").dropColumn("old").widenColumn("n", "BIGINT")
    changes.execute()


def mend(spark, table):
    """Late rows, which set what stored rows leave unset, also under another key: the merge is evaluated twice."""
    merge_into(table, spark, [(1, 15, "late", False), (2, 16, "late", False)])


def purge_old_key(spark, table):
    """Another row has values from it."""
    table.purge([2])


def vacuum(spark, table):
    table.vacuum(retentionHours=0)


def restore(spark, table):
    table.restore(2)


def purge(spark, table):
    table.purge([1])


def purge_where(spark, table):
    table.purgeWhere("id = 1")


def clone(spark, table):
    table.clone(made_by("clone", table))


def convert(spark, table):
    rows = frame(spark, ROWS, (1, 10, "a", False), (2, 10, None, True))
    TrinityTable.convert(spark, rows, made_by("convert", table), "id", **KEYS, properties={CHECKPOINT_INTERVAL: "1"})


def made_by(operation: str, table: TrinityTable) -> str:
    """The path of the table that an operation makes beside the one it begins with."""
    return f"{table.path}-{operation}"


OPERATIONS: dict[str, Callable[..., None]] = {
    f.__name__: f
    for f in (
        *(
            merge,
            remember,
            reject,
            compact,
            split,
            minor_compact,
            compare,
            vacuum,
            restore,
            purge,
            compact_versions,
            minor_compact_versions,
            extract,
            switch,
            follow,
            alter,
            mend,
            purge_old_key,
        ),
        *(purge_where, clone, convert),
    )
}
MAKES = {
    "clone": [(0, 10, "a", False), (1, 30, "c", False), (2, 10, "a", False), (3, 30, "c", False)],
    "convert": [(1, 10, "a", False)],
}
"""The operations that make another table, and its rows."""
BEGIN_AS = dict.fromkeys(["compact_versions", "minor_compact_versions", "extract"], "remembering") | {
    "switch": "compacted",
    "alter": "columned",
    "mend": "partial",
    "purge_old_key": "partial",
}
"""The table that an operation begins with, if it is not the ordinary one."""

STAGE = ["stage.before", "stage.written", "stage.synced"]
CREATE = ["create.written", "create.published", "create.synced"]
COMMIT = [
    "commit.before",
    *CREATE,
    "commit.done",
    "checkpoint.before",
    *CREATE,
    "checkpoint.done",
    "replace.written",
    "hint.done",
]
STEPS = {
    "merge": [*STAGE, "replace.written", "validate.before", "validate.done", *COMMIT],
    "remember": [
        *[*STAGE, "replace.written", "validate.before", "validate.done"],
        *[*STAGE, "outbox.staged", *COMMIT, "outbox.before"],
        *[*STAGE, "replace.written", "validate.before", "validate.done", *COMMIT, "outbox.written"],
        *[*COMMIT, "outbox.committed", "outbox.removed"],
    ],
    "reject": [
        *[*STAGE, "replace.written", *STAGE, "quarantine.staged", "validate.before", "validate.done", *COMMIT],
        *["outbox.before", *STAGE, "replace.written", "validate.before", "validate.done", *COMMIT, "outbox.written"],
        *[*COMMIT, "outbox.committed", "outbox.removed"],
    ],
    "compact": [*STAGE, "replace.written", "compact.staged", *COMMIT, "compact.committed"],
    "split": [
        *STAGE,
        "replace.written",
        *["split.moved"] * 2,
        *["replace.written"] * 2,
        "compact.staged",
        *COMMIT,
        "compact.committed",
    ],
    "minor_compact": [*STAGE, "replace.written", "minor_compaction.staged", *COMMIT, "minor_compaction.committed"],
    "compare": [*STAGE, "deletion_vectors.staged", *COMMIT, "deletion_vectors.committed"],
    "vacuum": ["vacuum.listed", *COMMIT, "vacuum.announced", *["vacuum.deleting", "vacuum.deleted"] * 4],
    "restore": ["restore.checked", *COMMIT],
    "purge": [
        *STAGE,
        "replace.written",
        *STAGE,
        "replace.written",
        "purge.staged",
        *COMMIT,
        "purge.committed",
        *["purge.deleted"] * 4,
    ],
    "compact_versions": [*[*STAGE, "replace.written"] * 2, "compact.staged", *COMMIT, "compact.committed"],
    "minor_compact_versions": [
        *[*STAGE, "replace.written"] * 2,
        "minor_compaction.staged",
        *COMMIT,
        "minor_compaction.committed",
    ],
    "extract": [*STAGE, "replace.written", "validate.before", "validate.done", *COMMIT],
    "switch": ["alter.prepared", *COMMIT, "alter.committed"],
    "follow": [STAGE[0], "replace.written", *STAGE[1:], "replace.written", "validate.before", "validate.done", *COMMIT],
    "alter": ["alter.prepared", *COMMIT, "alter.committed"],
    "mend": [
        *STAGE,
        "replace.written",
        "validate.before",
        "validate.done",
        *STAGE,
        "replace.written",
        "validate.before",
        "validate.done",
        *COMMIT,
    ],
    "purge_old_key": [
        *STAGE,
        "replace.written",
        *STAGE,
        "replace.written",
        "purge.staged",
        *COMMIT,
        "purge.committed",
        *["purge.deleted"] * 2,
    ],
    "clone": [*["replace.written", "clone.batch"] * 2, "clone.copied", *COMMIT],
    "convert": [*STAGE, "replace.written", "convert.staged", *COMMIT],
}
STEPS["purge_where"] = ["purge.found", *STEPS["purge"], "purge.found"]
"""What each operation comes to on the table below, in order."""

QUICK = {
    "merge": {*STAGE, "replace.written", "validate.before", "validate.done", "create.written", "create.published"},
    "remember": {
        *["stage.written:2", "outbox.staged", "create.published", "outbox.before"],
        *["create.written:3", "create.published:3", "outbox.written", "create.published:5", "outbox.committed"],
    },
    "reject": {
        *["stage.written:2", "quarantine.staged", "create.published", "outbox.before"],
        *["create.published:3", "outbox.written", "create.published:5", "outbox.committed"],
    },
    "compact": {"compact.staged", "compact.committed"},
    "split": {"split.moved:2", "replace.written:3", "create.published"},
    "minor_compact": {"minor_compaction.staged", "minor_compaction.committed"},
    "compare": {"stage.synced", "deletion_vectors.staged", "create.published", "deletion_vectors.committed"},
    "vacuum": {"create.published", "vacuum.deleting:2", "vacuum.deleted:2"},
    "restore": {"restore.checked"},
    "purge": {"stage.written:2", "purge.staged", "purge.committed", "purge.deleted:2"},
    "compact_versions": {"compact.staged"},
    "minor_compact_versions": {"minor_compaction.staged"},
    "extract": {"validate.done"},
    "switch": {"alter.prepared", "alter.committed"},
    "follow": {"validate.done"},
    "alter": {"create.written", "create.published", "replace.written"},
    "mend": {"validate.done", "stage.written:2", "validate.done:2"},
    "purge_old_key": {"stage.written:2", "purge.staged"},
    "purge_where": {"purge.found", "purge.found:2"},
    "clone": {"clone.batch:2", "clone.copied"},
    "convert": {"stage.written", "convert.staged"},
}
"""What is tried every time; all points when there is more time. Inside a commit, `test_log.py` kills everywhere, without Spark."""


def numbered(steps: list[str]) -> list[str]:
    """Each visit under a name of its own, as the fault hook takes it: ``point``, ``point:2``, ..."""
    seen: Counter[str] = Counter()
    names = []
    for step in steps:
        seen[step] += 1
        names.append(step if seen[step] == 1 else f"{step}:{seen[step]}")
    return names


def cases() -> list:
    return [
        pytest.param(operation, step, marks=[] if step in QUICK[operation] else [pytest.mark.long])
        for operation, steps in STEPS.items()
        for step in numbered(steps)
    ]


# The tables -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class State:
    """What a table is to its users: its columns and rows, what its history says, its versions, the extracts that it has taken, and
    the rows of the table beside it, if there is one."""

    columns: list
    rows: list
    history: list
    versions: list
    extracts: tuple
    beside: list

    @classmethod
    def of(cls, table: TrinityTable) -> State:
        commits = [(c.version, c.operation, len(c.added), len(c.removed)) for c in table._store.history()]
        opened = TrinityTable.forPath(table._store.spark, table.path)
        columns = [(f.name, f.text) for f in opened.definition.fields]
        assert [(f.name, f.dataType.simpleString()) for f in opened.toDF().schema] == columns
        versions = opened.versions().collect() if opened.definition.history else []
        past = directory_of(table).with_name(f"{directory_of(table).name}-past")
        beside = TrinityTable.forPath(table._store.spark, str(past)).toDF() if past.exists() else None
        # The rows of a quarantine have the path of the table and the time of the commit.
        beside = [] if beside is None else sorted(map(tuple, beside.drop("target", "at").collect()), key=repr)
        told = sorted(map(tuple, versions), key=repr)
        return cls(columns, live_rows(table), commits, told, opened._snapshot().extracts, beside)


@pytest.fixture(scope="module")
def before(spark, tmp_path_factory) -> TrinityTable:
    """A table with a base, a delta beside it, and files that only past versions need; each commit has a checkpoint."""
    table = new_table(spark, tmp_path_factory.mktemp("crashes"), ROWS, properties={CHECKPOINT_INTERVAL: "1"}, **KEYS)
    fill(table, spark, [(i, 10, "a", False) for i in range(5)], [(1, 20, "b", False), (4, 20, None, True)])
    table.compact()
    return fill(table, spark, [(1, 30, "c", False), (3, 30, "c", False)])


@pytest.fixture(scope="module")
def begun(spark, before, tmp_path_factory) -> dict[str, TrinityTable]:
    """The tables that operations begin with: the ordinary one; it, compacted; and two with versions, some of them archived."""
    directory, settings = tmp_path_factory.mktemp("versions"), {CHECKPOINT_INTERVAL: "1"}
    table = new_table(spark, directory, ROWS, properties=settings, **KEYS, history=True)
    fill(table, spark, [(i, 10, "a", False) for i in range(5)], [(1, 20, "b", False), (4, 20, None, True)])
    table.snapshot(frame(spark, "id INT, v STRING", (1, "b"), (2, "a"), (3, "z")), at=40).execute()
    table.compact()
    fill(
        table, spark, [(1, 30, "c", False), (3, 10, "corrected", False)], [(1, 15, "late", False), (3, 50, "d", False)]
    )
    compacted = copy_of(before, spark)
    compacted.compact()
    columned = new_table(spark, directory, f"{ROWS}, n INT, old STRING", properties=settings, **KEYS, history=True)
    fill(columned, spark, [(i, 10, "a", False, i, "old") for i in range(4)], [(1, 20, "b", False, 1, None)])
    columned.compact()
    fill(columned, spark, [(1, 30, "c", False, -1, "old"), (3, 15, "late", False, 3, None)])
    partial = new_table(spark, directory, ROWS, properties=settings, **KEYS)
    fill(partial, spark, [(i, 10, "a", False) for i in range(5)])
    events = frame(spark, "id INT, ts INT, v STRING, was INT", (1, 20, None, None), (6, 30, None, 2))
    partial.applyChanges(events, ignoreNullUpdates=True, movedFrom="was", exceptColumns=["was"]).execute()
    assert partial._snapshot().batches[-1].moved == 1
    return {
        "ordinary": before,
        "compacted": compacted,
        "remembering": table,
        "columned": columned,
        "partial": partial,
    }


@pytest.fixture(scope="module")
def nothing(begun) -> dict[str, State]:
    """What each of them is when nothing happens to it."""
    return {name: State.of(table) for name, table in begun.items()}


def begin(begun: dict[str, TrinityTable], operation: str, spark) -> TrinityTable:
    table = copy_of(begun[BEGIN_AS.get(operation, "ordinary")], spark)
    if operation == "remember":
        settings = {CHECKPOINT_INTERVAL: "1"}
        TrinityTable.create(spark, f"{table.path}-past", "id INT, v STRING", primaryKey="id", properties=settings)
    if operation == "reject":
        TrinityTable.createQuarantine(spark, f"{table.path}-past").alter().setProperty(
            CHECKPOINT_INTERVAL, "1"
        ).execute()
    return table


@pytest.fixture(scope="module")
def after(spark, begun) -> dict[str, tuple[list[str], State]]:
    """What each operation comes to, and what it makes of the table, when nobody is killed."""
    found = {}
    for name, operation in OPERATIONS.items():
        table, steps = begin(begun, name, spark), []
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(faults, "fault", steps.append)
            operation(spark, table)
        found[name] = (steps, State.of(table))
    return found


def log_files(table: TrinityTable) -> set[str]:
    return {file.name for file in (directory_of(table) / "_trinity_log").iterdir()}


def leftovers(table: TrinityTable) -> set[str]:
    """What no version of the table has ever named: staged batches, and temporary files of the log."""
    named = {f"_tm_batch={i}" for c in table._store.history() for i in c.added_ids}
    return (batch_directories(table) - named) | {name for name in log_files(table) if name.startswith(".")}


def next_row(table: TrinityTable) -> tuple:
    """One that needs the columns that the table has by now, and their types."""
    values = {"string": "next", "int": 7, "bigint": 1 << 40, "boolean": False}
    return tuple({"id": 9, "ts": 99}.get(f.name, values[f.text]) for f in table.definition.fields)


def check_next_writer_and_vacuum(spark, table: TrinityTable, rows: list) -> None:
    """The next writer goes on as if nothing had been; nothing but a vacuum removes what was left, and nothing else."""
    version, left, row = table.version, leftovers(table), next_row(table)
    assert merge_into(table, spark, [row]).version == version + 1
    assert leftovers(table) == left
    table.vacuum(retentionHours=0)
    assert leftovers(table) == set()
    assert batch_directories(table) == {f"_tm_batch={i}" for i in table._snapshot().referenced_ids}
    begun = table._snapshot().first_version
    assert {f"{v:020d}.json" for v in (0, *range(begun + 1, version + 2))} <= log_files(table)
    assert live_rows(TrinityTable.forPath(spark, table.path)) == sorted([*rows, row], key=repr)


def check_made_or_not(spark, operation: str, table: TrinityTable, made: bool) -> None:
    """There is a whole table, or none, and then the call can be repeated; a vacuum removes what the first one left."""
    path = made_by(operation, table)
    assert TrinityTable.isTrinityTable(spark, path) == made
    if not made:
        with pytest.raises(TableNotFoundError):
            TrinityTable.forPath(spark, path)
        OPERATIONS[operation](spark, table)
    check_next_writer_and_vacuum(spark, TrinityTable.forPath(spark, path), MAKES[operation])


# Killed at every point ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("operation", "step"), cases())
def test_s33_a_process_killed_anywhere_leaves_before_or_after(spark, begun, nothing, after, operation, step):
    if tables.ROOT and step not in numbered(after[operation][0]):
        pytest.skip("operations on this storage do not come to this point")
    table, steps = begin(begun, operation, spark), numbered(STEPS[operation])
    process = fork(OPERATIONS[operation], table.path, spark, fault=step)
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    committed = "create.published" in steps and steps.index(step) >= steps.index("create.published")
    if operation in ("remember", "reject") and committed:
        TrinityTable.forPath(spark, table.path).deleteWhere(
            "id = -1"
        ).execute()  # finds nothing, but finishes what is left
    expected = after[operation][1] if committed else nothing[BEGIN_AS.get(operation, "ordinary")]
    assert State.of(table) == expected
    visited = steps[: steps.index(step) + 1]
    staged = [s for s in visited if s.startswith("stage.written")]
    if operation == "mend" and "stage.before:2" in visited:  # it has discarded the rows without those that they mend
        staged.pop()
    if operation in MAKES:
        check_made_or_not(spark, operation, table, committed)
    elif staged and not committed:
        left = len([name for name in leftovers(table) if name.startswith("_tm_batch")])
        assert left == len(staged) or ("split.moved" in steps and left > 0)
    check_next_writer_and_vacuum(spark, table, expected.rows)


@pytest.mark.slow
def test_an_operation_that_was_killed_can_be_repeated(spark, before, after):
    """Purge most of all: what it had not yet deleted goes when it is called again."""
    table = copy_of(before, spark)
    process = fork(purge, table.path, spark, fault="purge.deleted")
    process.join(120)
    left = table.purge([1])
    assert (left.rowsRemoved, left.filesDeleted > 0) == (0, True)
    assert State.of(table).rows == after["purge"][1].rows
    assert table.purge([1]).filesDeleted == 0


@pytest.mark.parametrize(("operation", "step"), [("follow", "validate.done"), ("alter", "create.written")])
def test_S43_S44_what_was_killed_before_it_changed_columns_can_be_repeated(spark, begun, after, operation, step):
    if tables.ROOT and step not in after[operation][0]:
        pytest.skip("operations on this storage do not come to this point")
    table = begin(begun, operation, spark)
    process = fork(OPERATIONS[operation], table.path, spark, fault=step)
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    OPERATIONS[operation](spark, table)
    assert State.of(table) == after[operation][1]


@pytest.mark.parametrize("operation", ["follow", "alter"])
def test_S43_S44_the_version_before_columns_were_changed_keeps_them(spark, begun, nothing, operation):
    before = nothing[BEGIN_AS.get(operation, "ordinary")]
    table = begin(begun, operation, spark)
    process = fork(OPERATIONS[operation], table.path, spark, fault="create.published")
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    past = TrinityTable.forPath(spark, table.path, versionAsOf=table.version - 1)
    assert [(f.name, f.dataType.simpleString()) for f in past.toDF().schema] == before.columns
    assert live_rows(past) == before.rows
    table.restore(table.version - 1)
    assert live_rows(table) == before.rows


# No point is forgotten ------------------------------------------------------------------------------------------------


def modules() -> list:
    names = [m.name for m in pkgutil.walk_packages(trinitymerge.__path__, "trinitymerge.")]
    return [importlib.import_module(name) for name in names]


def test_every_point_an_operation_comes_to_is_a_case(after):
    if tables.ROOT:
        pytest.skip("lists the points on a local disk")
    assert {name: steps for name, (steps, _) in after.items()} == STEPS


def test_every_fault_point_of_the_package_is_a_case():
    declared = {point for module in modules() for point in getattr(module, "FAULT_POINTS", ())}
    sources = [Path(m.__file__).read_text("utf-8") for m in modules()]
    placed = {point for text in sources for point in re.findall(r'faults\.fault\("(?!name")([^"]+)"\)', text)}
    elsewhere = set(iceberg.FAULT_POINTS)  # test_iceberg.py kills there
    assert declared == placed == {step for steps in STEPS.values() for step in steps} | elsewhere


# Killed at random moments ---------------------------------------------------------------------------------------------


def work(spark, table):
    """Merges that add one to every counter, all at once, with compaction and vacuum in between, until somebody kills it."""
    while True:
        table.updateWhere(None, {"n": "n + 1"}).execute()
        table.merge(frame(spark, "id INT", 0, 1, 2)).whenMatched("target.n >= 0").updateExpr(
            {"n": "target.n + 1"}
        ).execute()
        table.compact()
        table.vacuum(retentionHours=60 / 3600)


WORK = "from test_crashes import work\nwork(spark, table)"


def wait_for_jobs() -> None:
    """In a shared JVM the query of a killed process goes on; it must end before its leftovers can be judged."""
    jobs, quiet = SparkContext.getOrCreate().statusTracker(), 0  # on Spark Connect, the server's
    while quiet < 5:  # between two jobs of one query there is a moment without any
        quiet = 0 if jobs.getActiveJobsIds() else quiet + 1
        time.sleep(0.1)


def check_counters(spark, table: TrinityTable) -> None:
    opened = TrinityTable.forPath(spark, table.path)
    merges = sum(c.operation in ("UPDATE", "MERGE") for c in opened._store.history())
    assert live_rows(opened) == [(i, merges) for i in range(3)], "every counter counts every merge, once"
    opened.vacuum(retentionHours=0)
    assert leftovers(opened) == set()
    assert live_rows(opened) == [(i, merges) for i in range(3)]


def wait_for_commits(table: TrinityTable, seconds: float = 120) -> None:
    before, end = table.version, time.monotonic() + seconds
    while table.version < before + 2:
        assert time.monotonic() < end, "the process commits nothing"
        time.sleep(0.02)


@pytest.mark.parametrize("kills", quickly((1, 20), {1}))
def test_s33_killed_at_random_moments(spark, tmp_path, kills):
    table = fill(new_table(spark, tmp_path, "id INT, n INT"), spark, [(i, 0) for i in range(3)])
    for _ in range(kills):
        process = fork(work, table.path, spark)
        wait_for_commits(table)
        time.sleep(random.uniform(0, 1))
        process.kill()
        process.join(30)
        assert process.exitcode == -signal.SIGKILL
        wait_for_jobs()
        check_counters(spark, table)


@pytest.mark.long
def test_s33_killed_at_random_moments_with_the_jvm(spark, tmp_path):
    """The whole process group at once: what a power cut does to the processes, Spark's tasks half done."""
    table = fill(new_table(spark, tmp_path, "id INT, n INT"), spark, [(i, 0) for i in range(3)])
    for _ in range(10):
        process = start(table.path, WORK, None)
        wait_for_commits(table)
        time.sleep(random.uniform(0, 3))
        kill(process)
        check_counters(spark, table)
