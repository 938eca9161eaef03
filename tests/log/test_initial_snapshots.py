"""S7b, S40a: a log that begins with a snapshot of a later version, in one file, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from test_log import START_MS, batch, create, file_of, grow, hint_of

from trinitymerge.errors import CorruptTableError, TableNotFoundError
from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.log import files, log
from trinitymerge.log.actions import (
    AddBatch,
    AddExtract,
    InapplicableCommit,
    PurgeKeys,
    RemoveBatch,
    SetDefinition,
    SetHorizon,
    SetTransaction,
)
from trinitymerge.log.files import decode_with_checksum, encode_with_checksum
from trinitymerge.log.log import CommitLog
from trinitymerge.log.model import Commit, Snapshot

TIMES = {v: START_MS + 1000 * v for v in range(7)}


def whole(directory: Path) -> Snapshot:
    """Version 7 of a table, with something of all that a snapshot can hold."""
    table, snapshot = create(directory / "original")
    commit = grow(table, snapshot, 6).next_commit(
        "MERGE",
        [
            RemoveBatch("b2"),
            AddBatch(batch("b7", archive="resolved", version=3)),
            AddBatch(batch("c7", segment_of="t", base=True, extra={"colour": "red"})),
            SetTransaction("app", 12, "query"),
            SetHorizon((5, None)),
            PurgeKeys("5a17", ["ab", "cd"]),
            AddExtract((3,)),
        ],
    )
    return table.commit(attrs.evolve(commit, timestamp_ms=START_MS + 7000))


def begun(directory: Path, snapshot: Snapshot, times: dict[int, int] = TIMES) -> tuple[CommitLog, Snapshot]:
    """A log that begins with a snapshot."""
    table = CommitLog(LocalFileSystem(), str(directory / "table"))
    commit = Commit(
        version=0,
        timestamp_ms=snapshot.timestamp_ms,
        operation="CLONE",
        actions=[SetDefinition(snapshot.definition), snapshot.as_initial(times)],
    )
    return table, table.create(commit)


def again(table: CommitLog) -> CommitLog:
    return CommitLog(LocalFileSystem(), table.files.table_path)


@pytest.fixture
def copy(tmp_path: Path) -> tuple[CommitLog, Snapshot]:
    return begun(tmp_path, whole(tmp_path))


def test_S40a_a_log_begins_with_all_that_a_snapshot_holds_in_one_file(tmp_path):
    original = whole(tmp_path)
    table, first = begun(tmp_path, original)
    told = {"first_version": 7, "checksum": first.checksum, "table_id": first.table_id}
    assert first.table_id != original.table_id
    assert first == attrs.evolve(original, **told)
    assert again(table).newest() == first
    assert [b.extra for b in again(table).newest().batches if b.id == "c7"] == [{"colour": "red"}]
    assert sorted(f.name for f in file_of(table, 0).parent.iterdir()) == [file_of(table, 0).name, "_last.json"]


def test_a_commit_with_a_beginning_survives_json(tmp_path):
    snapshot = whole(tmp_path)
    commit = Commit(version=0, timestamp_ms=1, operation="X", actions=[snapshot.as_initial(TIMES)])
    read = Commit.from_json(json.loads(json.dumps(commit.to_json())))
    assert read == commit
    assert read.initial_snapshot.commit_times == TIMES


@pytest.mark.parametrize("hint", ["kept", "lost"])
@pytest.mark.parametrize("interval", ["1", "4", "50"])
def test_S40_the_log_goes_on_with_the_next_version(tmp_path, monkeypatch, hint, interval):
    snapshot = whole(tmp_path)
    own = attrs.evolve(snapshot.definition, properties={"trinitymerge.checkpointInterval": interval})
    table, first = begun(tmp_path, attrs.evolve(snapshot, definition=own))
    newest = grow(table, first, 12)
    if hint == "lost":
        hint_of(table).unlink()
    found = again(table)
    assert found.newest() == newest
    assert found.newest(first) == newest
    assert [found.at(v).version for v in (7, 8, 12)] == [7, 8, 12]
    assert found.at(7) == first
    assert found.at(9).batches == tuple(b for b in newest.batches if b.version <= 9)
    if hint == "kept":  # nothing has to be listed to find the end
        monkeypatch.setattr(files.LogFiles, "list_versions", None)
        assert again(table).newest() == newest


def test_S40_what_came_before_is_not_there_but_for_the_empty_table(copy):
    table, first = copy
    grow(table, first, 9)
    empty = again(table).at(0)
    assert (empty.version, empty.batches, empty.transactions, empty.definition) == (0, (), {}, first.definition)
    for version in (1, 6, 10):
        with pytest.raises(TableNotFoundError, match=rf"has no version {version}; it has versions 7 to 9\..*copied"):
            again(table).at(version)


def test_S40_commits_begin_with_the_one_that_made_the_copy(copy):
    table, first = copy
    grow(table, first, 9)
    found = again(table)
    assert [(c.version, c.operation) for c in found.commits()] == [(9, "MERGE"), (8, "MERGE"), (7, "CLONE")]
    assert [c.version for c in found.commits(1, 8, newest_first=False)] == [7, 8]
    assert [c.version for c in found.commits(8, 9)] == [9, 8]
    assert [[*found.commits(*span)] for span in ((1, 6), (9, 8), (10, 9))] == [[], [], []]
    (made,) = found.commits(7, 7)
    assert (made.added, made.timestamp_ms) == (first.batches, first.timestamp_ms)
    assert found.at(0).apply(made).batches == first.batches


def test_S40_times_of_the_copy_and_of_the_versions_its_rows_count_as(copy):
    table, first = copy
    grow(table, first, 9)
    found = again(table)
    assert [found.version_at(START_MS + t) for t in (7000, 7999, 8000, 99_000)] == [7, 7, 8, 9]
    with pytest.raises(TableNotFoundError, match=r"did not exist at .* its first version, 7, is of 2023-11-14"):
        found.version_at(START_MS + 6999)
    assert [found.committed_at(v) for v in (2, 6, 7, 8)] == [START_MS + 1000 * v for v in (2, 6, 7, 8)]
    assert [found.version_of(START_MS + t) for t in (2000, 2001, 7000, 8000)] == [2, None, 7, 8]


def test_a_time_that_nobody_noted_is_not_made_up(tmp_path):
    table, _ = begun(tmp_path, whole(tmp_path), {3: TIMES[3]})
    assert table.committed_at(3) == TIMES[3]
    with pytest.raises(CorruptTableError, match=r"0005\.json' cannot be used: it is missing"):
        table.committed_at(5)


def test_S33_a_table_begins_once(copy, tmp_path):
    table, first = copy
    with pytest.raises(FileExistsError):
        begun(tmp_path, first)
    with pytest.raises(InapplicableCommit, match="version 7 exists already"):
        first.apply(Commit(version=8, timestamp_ms=2 * START_MS, operation="X", actions=[first.as_initial()]))
    assert again(table).newest() == first


def test_a_beginning_in_the_middle_of_a_log_is_damage(copy):
    table, first = copy
    entry = Commit(
        version=8,
        timestamp_ms=2 * START_MS,
        operation="X",
        previous=first.checksum,
        actions=[first.as_initial()],
    )
    file_of(table, 8).write_bytes(encode_with_checksum(entry.to_json())[0])
    with pytest.raises(CorruptTableError, match=r"0008\.json' cannot be used: version 7 exists already"):
        again(table).newest()


@pytest.mark.parametrize("damage", ["future batch", "batch of no version", "no version", "times"])
def test_a_damaged_beginning_is_named(copy, damage):
    table, _ = copy
    data, _ = decode_with_checksum(file_of(table, 0).read_bytes())
    begins = data["actions"][2]
    if damage == "no version":
        del begins["version"]
    elif damage == "times":
        begins["commitTimes"]["3"] = "yesterday"
    else:
        begins["actions"][1]["batch"]["version"] = 8 if damage == "future batch" else None
    file_of(table, 0).write_bytes(encode_with_checksum(data)[0])
    with pytest.raises(CorruptTableError, match=r"00000\.json' cannot be used"):
        again(table).newest()


def test_a_table_that_was_replaced_by_a_copy_is_noticed(tmp_path):
    table, snapshot = create(tmp_path)
    known = grow(table, snapshot, 9)
    for file in file_of(table, 0).parent.iterdir():
        file.unlink()
    copied, first = begun(tmp_path, whole(tmp_path))
    assert again(table).newest(known) == first
    with pytest.raises(TableNotFoundError, match="dropped or replaced"):
        again(table).commit(known.next_commit("MERGE"), known)
    assert log.CommitLog(LocalFileSystem(), copied.files.table_path).newest() == first
