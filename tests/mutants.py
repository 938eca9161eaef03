"""Breaks the package on purpose, in ways a plausible bug would, and checks that the tests notice: ``make mutants``.

Each mutant replaces one piece of text in one file of a copy of the package, and names the tests that should notice. A
mutant is killed when one of them fails. That they pass on the package as it is, is checked first; that every text is still
there, and every test, is checked by ``test_mutants.py`` too. The table goes into ``tests/README.md``.

``make test`` runs all these tests (``selection.py``).

Usage: python tests/mutants.py [words of the names of some mutants]
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "tests" / "README.md"
COPIED = ("trinitymerge", "tests", "examples", "pyproject.toml", "docs")
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"

_OUTCOME = re.compile(r"^(?:FAILED|ERROR) \S*?(test_\w+\.py::.+?)(?: - .*)?$", re.MULTILINE)
_BROKEN = re.compile(
    r"^E +(?:\w+\.)*((?:Name|Syntax|Import|UnboundLocal|Type|Attribute|Key)Error\b|ParseException|AnalysisException)"
    r"|UNRESOLVED_COLUMN|Column '.*' not found",
    re.MULTILINE,
)
"""What says that the mutant does not even run: that is no way to be found out."""


@attrs.frozen
class Mutant:
    """One bug.

    Attributes:
        name: what it does wrong.
        file: below the package.
        old: text that occurs there once.
        new: what replaces it.
        tests: ``file::name`` below tests/.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = attrs.field(converter=tuple)

    def mutated(self) -> str:
        """The file's text with the bug in it."""
        text = (ROOT / "trinitymerge" / self.file).read_text("utf-8")
        if text.count(self.old) != 1:
            raise LookupError(f"{self.name}: {self.file} has this text {text.count(self.old)} times:\n{self.old}")
        return text.replace(self.old, self.new)


_TRUNCATES = "feeds/test_truncates.py"
_RACES = "history/test_races.py"
_JUDGING = "feeds/test_judging.py"
_KEY_CHANGES = "feeds/test_key_changes.py"
_UNCHANGED = "feeds/test_unchanged.py"
_DEBEZIUM = "feeds/test_debezium.py"
_QUARANTINE = "merge/test_quarantine.py"
_INGEST = "ingest/test_ingest.py"
_VECTORS = "maintenance/test_deletion_vectors.py"

MUTANTS = (
    Mutant(
        "the last clause that holds applies, not the first (S17)",
        "merge/analysis/relations.py",
        "(as_sql(c), v) for c, v in branches if",
        "(as_sql(c), v) for c, v in reversed(branches) if",
        ["merge/test_merge.py::test_S17_first_true_clause_applies_and_no_other"],
    ),
    Mutant(
        "a null condition counts as true (S20)",
        "merge/analysis/relations.py",
        "(as_sql(c), v) for c, v in branches if",
        '(Sql(f"coalesce({as_sql(c)}, true)"), v) for c, v in branches if',
        ["merge/test_merge.py::test_S17_S20_row_stays_where_no_condition_is_true_and_null_is_not"],
    ),
    Mutant(
        "a tie goes to the earlier commit (S6)",
        "rows/resolution.py",
        'Sql(f"{value} {way}") for',
        'Sql(f"{value} ASC") for',
        ["test_reader.py::test_S6_equal_watermarks_are_decided_by_the_last_of_many_commits"],
    ),
    Mutant(
        "over a base, a tie goes to the base (S6)",
        "reader.py",
        "fresher = is_older(_marked(order), order.values)",
        'fresher = Sql(f"NOT {is_older(order.values, _marked(order))}")',
        ["test_reader.py::test_S13_few_changes_over_many_rows_are_resolved_by_every_type_of_watermark"],
    ),
    Mutant(
        "rows of small batches that tie all live (S6)",
        "reader.py",
        "mine = Order.of(definition, [version, *place])",
        "mine = Order.of(definition)",
        ["test_reader.py::test_S13_few_changes_over_many_rows_are_resolved_by_every_type_of_watermark"],
    ),
    Mutant(
        "a row that a base row has beaten lives beside it (S13)",
        "reader.py",
        "marks = marks.unionByName(select_exprs(beating, _mark(definition, own)))",
        "pass",
        ["test_reader.py::test_S13_few_changes_over_many_rows_are_resolved_by_every_type_of_watermark"],
    ),
    Mutant(
        "batches that may have a key twice are read as if they had not (S12)",
        "reader.py",
        "return all(b.unique_keys for b in (*unmarked, *self.deltas.batches))",
        "return True",
        ["test_reader.py::test_S12_one_event_that_is_there_twice_over_many_rows_is_one_row"],
    ),
    Mutant(
        "tombstones are compared before watermarks (S13)",
        "reader.py",
        "Order.of(definition, [C.VERSION], ties)",
        "Order((E.is_tombstone(definition), *map(E.quote, definition.watermarkKey)), (C.VERSION,), tuple(ties))",
        ["test_reader.py::test_S13_toDF_resolves_batches_out_of_order"],
    ),
    Mutant(
        "null is the largest watermark (S3)",
        "rows/resolution.py",
        'self._sorted(Sql("DESC"), Sql("NULLS LAST"))',
        'self._sorted(Sql("DESC"), Sql("NULLS FIRST"))',
        ["test_reader.py::test_S3_null_watermark_is_smallest_also_where_it_is_alone"],
    ),
    Mutant(
        "tombstones are filtered out before rows are resolved (S14)",
        "reader.py",
        "    return winners(rows, definition, ",
        '    rows = rows.filter(f"NOT {E.is_tombstone(definition)}")\n    return winners(rows, definition, ',
        ["test_reader.py::test_S13_toDF_resolves_batches_out_of_order"],
    ),
    Mutant(
        "a base is taken to be older than what came after it, whatever the watermarks (S13)",
        "reader.py",
        "is_at_least(d.watermark_min, b.watermark_max, own)",
        "True",
        ["test_reader.py::test_S13_few_changes_over_many_rows_are_resolved_by_every_type_of_watermark"],
    ),
    Mutant(
        "statistics take a time without zone for a moment in the session's zone (S3)",
        "rows/watermarks.py",
        "f\"CAST({_microseconds('{0}')} AS STRING)\"",
        "\"CAST(timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', {0}) AS STRING)\"",
        ["rows/test_watermarks.py::test_S13_older_row_in_a_gap_of_the_sessions_zone_loses"],
    ),
    Mutant(
        "text that JSON cannot hold is trusted in statistics (S3, S31)",
        "rows/watermarks.py",
        "is_lossless=lambda value: _UNREADABLE not in str(value)",
        "is_lossless=lambda value: True",
        [
            "rows/test_watermarks.py::test_S3_text_that_is_not_valid_compares_by_its_bytes",
            "rows/test_watermarks.py::test_S31_key_that_is_not_valid_text_is_found[two]",
        ],
    ),
    Mutant(
        "timestamps are cut to milliseconds in files (S8)",
        "stores/file_format.py",
        '_TIMESTAMPS: "TIMESTAMP_MICROS"',
        '_TIMESTAMPS: "TIMESTAMP_MILLIS"',
        ["spark/test_conf.py::test_S8_timestamps_keep_their_digits_whatever_the_session_writes"],
    ),
    Mutant(
        "the watermark of a tombstone that hides the key is not carried over (S10.3)",
        "merge/compile/program.py",
        " is_unpaired and keeps and shows_all and (",
        " is_unpaired and keeps and (",
        ["merge/test_merge.py::test_S10_3_insert_over_a_tombstone_takes_its_watermark_and_wins"],
    ),
    Mutant(
        "a stale row counts as updated (S11, S30a)",
        "merge/analysis/row_kinds.py",
        "stays = (Case.same(C.IS_CONFLICTING_MOVE, CONFLICTING_MOVE), Case.same(C.IS_STALE, LATE))",
        "stays = (Case.same(C.IS_CONFLICTING_MOVE, CONFLICTING_MOVE),)",
        ["merge/test_merge.py::test_S30a_counts_say_what_readers_see"],
    ),
    Mutant(
        'onStale("force") leaves the old watermark (S11)',
        "merge/compile/resolve_effects.py",
        "        mine = [E.case([(stale, b)], m) for m, b in zip(mine, before, strict=True)]\n        stale =",
        "        stale =",
        ["merge/test_merge.py::test_S11_force_writes_the_replaced_rows_watermark_and_wins"],
    ),
    Mutant(
        "a batch is written that is bound to be thrown away (S31)",
        "merge/compile/strategies.py",
        " and p not in choice.futile)",
        ")",
        ["merge/test_strategies.py::test_what_a_clause_is_there_for_is_not_tried_blindly_first"],
    ),
    Mutant(
        "a late change writes the inserts beside it all the same (S21a)",
        "merge/compile/resolve_effects.py",
        "suppressed = E.or_else(C.IS_STALE_CHANGE, E.FALSE)",
        "suppressed = E.FALSE",
        [
            "merge/test_late_changes.py::test_S21a_a_late_change_leaves_a_type_2_dimension_with_one_current_row_for_each_customer"
        ],
    ),
    Mutant(
        "beside a late move inserts are written all the same (S21a, S24)",
        "merge/compile/resolve_effects.py",
        "    if program.beside_moves:\n        stale_move",
        "    if program.beside_moves and program.on_stale is None:\n        stale_move",
        ["merge/test_late_changes.py::test_S21a_S24_beside_a_late_move_nothing_is_written_and_another_frees_its_key"],
    ),
    Mutant(
        "a tombstone keeps what an event brings (S9)",
        "merge/compile/shape.py",
        "blanks = masked(program.definition) if program.brings_tombstones else {}",
        "blanks: dict[str, Sql] = {}",
        ["merge/test_merge.py::test_S9_a_tombstone_holds_key_watermark_and_tombstone_only_on_every_path"],
    ),
    Mutant(
        "what a tombstone does not hold is judged (S9, S34)",
        "merge/compile/shape.py",
        "if if_alive and isinstance(",
        "if if_alive and not program and isinstance(",
        ["merge/test_merge.py::test_S9_S34_values_that_a_tombstone_does_not_hold_are_not_judged"],
    ),
    Mutant(
        "compaction keeps the columns of deleted rows (S9)",
        "maintenance/rewrite.py",
        "latest = latest.selectExpr(*tombstone_columns(definition, latest.columns))",
        "latest = latest.select(*latest.columns)",
        ["maintenance/test_maintenance.py::test_s9_compaction_reduces_tombstones_that_were_written_in_full"],
    ),
    Mutant(
        "a preview shows rows of purged keys",
        "merge/execute/plan.py",
        "seen = self.seen(self.spec.store.snapshot())",
        "seen = attrs.evolve(self.seen(self.spec.store.snapshot()), purged=None)",
        ["maintenance/test_maintenance.py::test_a_preview_leaves_purged_keys_out_as_the_merge_does"],
    ),
    Mutant(
        "a restore leaves the horizon of what was forgotten since (S38, S40)",
        "maintenance/vacuum.py",
        "RestoreVersion(old.version, old.horizon, old.extracts)",
        "RestoreVersion(old.version, latest.horizon, old.extracts)",
        ["maintenance/test_maintenance.py::test_s38_s40_restore_brings_the_old_horizon_back"],
    ),
    Mutant(
        "rows that contradict each other are written (S12)",
        "merge/execute/executor.py",
        "if not counts.unique:\n            validate",
        "if not counts.unique and definition.watermarkKey:\n            validate",
        ["merge/test_merge.py::test_S12_maps_are_compared_too"],
    ),
    Mutant(
        "deletes of absent keys are not recorded (S18)",
        "merge/compile/fire.py",
        "if match is None or not program.recorded:",
        "if match is None or program.recorded:",
        ["merge/test_merge.py::test_C1_delete_of_an_absent_key_writes_a_tombstone_that_counts_as_appended_only"],
    ),
    Mutant(
        "an update-only clause is appended blindly (S31)",
        "merge/analysis/outcomes.py",
        "(m, _recorded_delete(analysis, match, plan))",
        "(m, _recorded_delete(analysis, match, plan) or BlindDelete(m, plan.rows[0].values))",
        ["merge/test_strategies.py::test_update_alone_looks_up_keys"],
    ),
    Mutant(
        "a condition is taken to bind as its text was split (S20, S31)",
        "merge/analysis/key_match.py",
        "is_known = is_plain_equality(condition) or all(",
        "is_known = len(found) == 1 or all(",
        ["merge/test_strategies.py::test_S20_equality_that_binds_otherwise_than_its_text_reads_is_not_key_equality"],
    ),
    Mutant(
        "source rows without a pair are forgotten when the source is sent (S13, S19)",
        "merge/compile/join.py",
        'return self._source.join(paired, F.expr(E.equals(C.SOURCE_ROW, C.PAIRED_ROW)), "left")',
        'return self._source.join(paired, F.expr(E.equals(C.SOURCE_ROW, C.PAIRED_ROW)), "inner")',
        ["merge/test_lookup.py::test_S13_small_and_large_sources_are_merged_alike[close_and_open]"],
    ),
    Mutant(
        "batches that touch the sought range with their end are skipped (S31)",
        "rows/key_ranges.py",
        "mine[1] < its[0] or",
        "mine[1] <= its[0] or",
        ["rows/test_key_ranges.py::test_S31_lookup_filters_files_by_leading_key_columns_whose_range_is_narrow"],
    ),
    Mutant(
        "a long bound is cut and not rounded up (S31)",
        "rows/key_ranges.py",
        "(least[:_CHARACTERS], _rounded_up(most))",
        "(least[:_CHARACTERS], most[:_CHARACTERS])",
        ["merge/test_lookup.py::test_S31_a_cut_bound_still_holds"],
    ),
    Mutant(
        "the condition is evaluated again for rows that were looked up before (S32)",
        "merge/compile/join.py",
        "self.analysis.condition if self.equalities.over_keys is None else self.equalities.over_keys",
        "self.analysis.condition",
        [
            "merge/test_lookup.py::test_S32_what_is_sought_is_what_is_compared_even_if_time_has_moved_on[by all of the table]"
        ],
    ),
    Mutant(
        "SELECTs become one although the second reads what the first computes",
        "merge/compile/steps.py",
        "again or apart or any(",
        "again or apart or all(",
        ["merge/test_steps.py::test_SELECTs_that_read_what_another_computes_stay_apart"],
    ),
    Mutant(
        "only the first ten of a few keys are looked for (S31)",
        "rows/key_ranges.py",
        "for i in range(0, len(literals), _LISTED)]",
        "for i in range(0, min(len(literals), _LISTED), _LISTED)]",
        ["rows/test_key_ranges.py::test_S31_few_keys_far_apart_are_handed_to_the_files_by_value"],
    ),
    Mutant(
        "clauses that write different rows are taken for one (S31)",
        "merge/analysis/outcomes.py",
        "row = (kinds, source.identity(expressions) if expressions else None)",
        "row = (kinds, None)",
        ["merge/test_scaling.py::test_S31_clauses_are_paired_by_the_row_they_write_whatever_their_number"],
    ),
    Mutant(
        "the optimizer looks into what clauses and columns are made of",
        "spark/expressions.py",
        'return Sql(f"CASE WHEN spark_partition_id() >= 0 THEN {value} END")',
        "return value",
        ["merge/test_scaling.py::test_columns_that_the_sources_filter_names_cost_no_more_for_being_many"],
    ),
    Mutant(
        "rows that exist only on the target are looked for among the source's keys (S19)",
        "merge/compile/strategies.py",
        "        if target_only:\n",
        "        if target_only and match is None:\n",
        ["merge/test_merge.py::test_S19_target_only_clauses_apply_to_live_rows_without_a_pair"],
    ),
    Mutant(
        "a moved row stays where it was, too (S24)",
        "merge/analysis/row_kinds.py",
        "return (C.KEY_TAKEN, E.not_(C.CHANGED), E.all_of([C.CHANGED, C.IS_STALE, storable]))",
        "return (E.TRUE,)",
        ["merge/test_merge.py::test_S24_moved_row_leaves_its_old_key"],
    ),
    Mutant(
        "a key that is freed and taken again gets a tombstone as well (S24, S25)",
        "merge/analysis/row_kinds.py",
        "return (C.KEY_TAKEN, E.not_(C.CHANGED),",
        "return (E.not_(C.CHANGED),",
        ["merge/test_merge.py::test_S24_swapped_keys_get_only_the_arriving_rows"],
    ),
    Mutant(
        "a row that moves to two places lives on twice (S24)",
        "merge/execute/executor.py",
        'if observed["conflicting_move"]:',
        'if observed["conflicting_move"] and counts.unique is None:',
        ["merge/test_merge.py::test_S24_a_row_moved_to_two_places_is_ambiguous"],
    ),
    Mutant(
        "keys that are live may be taken (S25)",
        "merge/execute/executor.py",
        'if observed["duplicates"]:',
        'if observed["duplicates"] and not clauses:',
        ["merge/test_merge.py::test_S25_insert_at_a_live_key_is_refused"],
    ),
    Mutant(
        "a rejected row decides over other rows (S22b, S25, S47)",
        "merge/execute/quarantine.py",
        "    if compiled.program.depends_on_others:\n",
        "    if not compiled.program:\n",
        ["merge/test_quarantine.py::test_S47_S22b_a_rejected_row_changes_nothing"],
    ),
    Mutant(
        "a refused merge leaves its files behind (S34)",
        "merge/execute/executor.py",
        "            if self.after is None and (is_before or not self.committing):\n",
        "            if self.after is None and not isinstance(error, Exception):\n",
        ["merge/test_executor.py::test_S34_a_refused_merge_leaves_no_files"],
    ),
    Mutant(
        "a transaction runs twice (S36)",
        "merge/execute/executor.py",
        "if last is None or last < transaction.number:",
        "if last is None or last <= transaction.number:",
        ["merge/test_executor.py::test_S36_the_same_transaction_from_two_writers_at_once_runs_once"],
    ),
    Mutant(
        "a stream that starts over is taken for a replay (S36a)",
        "log/commit.py",
        "elif last is not None and batch.number < last:",
        "elif last is not None and batch.number < 0:",
        [
            "feeds/test_streaming.py::test_S36a_a_micro_batch_with_a_smaller_number_is_refused_and_an_equal_one_is_a_replay"
        ],
    ),
    Mutant(
        "a column that part of a longer name mentions is left out unnoticed (S22a)",
        "merge/analysis/ignored_columns.py",
        'rf"(?<!\\w){quoted}(?!\\w){alias}"',
        'rf"{quoted}{alias}"',
        ["stores/test_file_format.py::test_S22a_a_mention_in_the_merge_condition_counts_and_a_longer_name_does_not"],
    ),
    Mutant(
        "history's times go through text of the session's zone (S40)",
        "_arguments.py",
        "timestamp_millis({E.quote(time)}) AS",
        "to_timestamp_ltz(from_unixtime({E.quote(time)} / 1000)) AS",
        ["test_times.py::test_S40_history_and_timestampAsOf_agree_in_every_zone[UTC-Europe/Berlin]"],
    ),
    Mutant(
        "an empty source empties the table (S37)",
        "merge/compile/strategies.py",
        "source_rows = evaluated.once.rows\n",
        "source_rows = evaluated.once.rows or None\n",
        ["merge/test_merge.py::test_S37_C12_empty_source_commits_nothing_whatever_the_clauses"],
    ),
    Mutant(
        "compaction forgets every tombstone (S38)",
        "maintenance/rewrite.py",
        "        if not definition.watermarkKey and not definition.history:\n            return cls(None, everything=True)\n",
        "        if definition:\n            return cls(None, everything=True)\n",
        [
            "test_properties.py::test_S13_S18_events_give_the_same_table_in_any_order_and_batching[compacted after every batch]"
        ],
    ),
    Mutant(
        "deletion vectors mark the latest row of a key instead of the others (D1)",
        "maintenance/deletion_vectors.py",
        '"left_semi"',
        '"left_anti"',
        [f"{_VECTORS}::test_D1_D2_each_file_has_a_bit_for_each_row_that_a_fresher_one_replaces"],
    ),
    Mutant(
        "of one event that is there twice no deletion vector marks one (D1)",
        "maintenance/deletion_vectors.py",
        "else (file, C.ROW_IN_FILE)",
        "else ()",
        [f"{_VECTORS}::test_D1_of_one_event_that_is_there_twice_one_is_marked"],
    ),
    Mutant(
        "new deletion vectors forget the rows that earlier ones mark (D1)",
        "maintenance/deletion_vectors.py",
        "    if batches.deletion_vectors is not None:\n        known",
        "    if False:\n        known",
        [f"{_VECTORS}::test_D3_a_minor_compaction_leaves_the_vectors_of_other_batches"],
    ),
    Mutant(
        "the bit of the next row is read (D2)",
        "stores/deletion_vectors.py",
        "CAST({C.ROW_IN_FILE} & 63 AS INT)",
        "CAST(({C.ROW_IN_FILE} + 1) & 63 AS INT)",
        [f"{_VECTORS}::test_D1_D2_each_file_has_a_bit_for_each_row_that_a_fresher_one_replaces"],
    ),
    Mutant(
        "a file of the same size is taken for the one that is marked (D2)",
        "stores/deletion_vectors.py",
        'Sql(f"{C.BATCH} = {C.MARKED_IN}"), Sql(f"{C.FILE_OF_ROW} = {C.MARKED_FILE}")]',
        "]",
        [f"{_VECTORS}::test_D2_files_of_equal_sizes_are_told_apart"],
    ),
    Mutant(
        "deletion vectors are believed whatever is in their file (D2)",
        "stores/deletion_vectors.py",
        'problem = "" if self._checksum(file) == vectors.checksum else',
        'problem = "" if file else',
        [f"{_VECTORS}::test_D2_vectors_that_are_damaged_are_ignored_with_one_warning"],
    ),
    Mutant(
        "deletion vectors outlive a purge (D3)",
        "log/actions.py",
        "        if compaction != MINOR:\n            return None",
        "        if False:\n            return None",
        [f"{_VECTORS}::test_D3_other_commits_that_remove_a_compared_batch_end_the_vectors"],
    ),
    Mutant(
        "later batches are not compared with those that have deletion vectors (D2)",
        "log/batches.py",
        "        return tuple(b for b in self.batches if b.id in vectors.marked)",
        "        return self.batches",
        [f"{_VECTORS}::test_D1_D2_each_file_has_a_bit_for_each_row_that_a_fresher_one_replaces"],
    ),
    Mutant(
        "deletion vectors outlive a restore (D3)",
        "log/actions.py",
        "self.horizon, dict.fromkeys(self.extracts), None\n        state.deletion_vectors = None",
        "self.horizon, dict.fromkeys(self.extracts), None",
        ["test_simulation.py::test_S33_S35_every_schedule_keeps_what_is_promised"],
    ),
    Mutant(
        "a minor compaction forgets tombstones (S38a)",
        "maintenance/rewrite.py",
        "KEEP_ALL = TombstoneRetention(None)",
        "KEEP_ALL = TombstoneRetention(None, everything=True)",
        [
            "maintenance/test_minor_compaction.py::test_S38a_a_fold_changes_nothing_for_readers_now_or_after_more_late_rows"
        ],
    ),
    Mutant(
        "a minor compaction counts as its own commit, and so as newer than concurrent batches (S38a)",
        "maintenance/minor_compaction.py",
        "rewritten.batch(version, base=everything)",
        "rewritten.batch(snapshot.version + 1, base=everything)",
        ["maintenance/test_minor_compaction.py::test_S38a_a_fold_goes_on_top_of_merges_that_land_meanwhile"],
    ),
    Mutant(
        "a minor compaction of some batches is taken for a base (S38a)",
        "maintenance/minor_compaction.py",
        "everything = len(replaces) == len(snapshot.live_batches)",
        "everything = bool(replaces)",
        [
            "maintenance/test_minor_compaction.py::test_S38a_a_fold_changes_nothing_for_readers_now_or_after_more_late_rows"
        ],
    ),
    Mutant(
        "batches are compacted that are no neighbours (S38a)",
        "maintenance/minor_compaction.py",
        "groupby(batches, lambda b: sizes[b.id] < cheap)",
        "[(True, [b for b in batches if sizes[b.id] < cheap])]",
        ["maintenance/test_minor_compaction.py::test_S38a_neighbours_are_folded_and_none_that_is_large_beside_them"],
    ),
    Mutant(
        "a compaction keeps a minor compaction of rows whose tombstone it forgets (S38a)",
        "maintenance/compaction.py",
        "    stay = here & {*of, *(b.id for b in kept)}\n"
        "    held = {*stay, *(i for batch in stay & of.keys() for i in of[batch])}\n",
        "    stay = {b.id for b in now.batches if b.version > landed.since.version or b in kept}\n"
        "    held = {*stay, *(b.id for b in landed.appended_batches)}\n",
        ["maintenance/test_minor_compaction.py::test_S38_S38a_a_compaction_commits_beside_folds"],
    ),
    Mutant(
        "a compaction that loses a second race forgets what landed before the first (S38a)",
        "log/commit.py",
        "remade(everything)",
        "remade(landed)",
        [
            "maintenance/test_minor_compaction.py::test_S38_S38a_a_compaction_that_loses_many_races_to_merges_and_folds_keeps_every_merge"
        ],
    ),
    Mutant(
        "a merge that reads the target is evaluated again for every minor compaction (S38a)",
        "merge/execute/conflicts.py",
        "if commit.changes_data:\n            return False",
        "if commit.changes_data or commit.is_minor_compaction:\n            return False",
        ["maintenance/test_minor_compaction.py::test_S38a_a_merge_that_reads_the_target_is_not_disturbed_by_a_fold"],
    ),
    Mutant(
        "a first key belongs to the segment before (S38b)",
        "maintenance/segments.py",
        'condition = Sql(f"{name} >= {literal}")',
        'condition = Sql(f"{name} > {literal}")',
        ["maintenance/test_segments.py::test_S38b_a_key_belongs_to_the_last_segment_that_begins_at_or_before_it"],
    ),
    Mutant(
        "a batch belongs to the segment of its smallest key (S38b)",
        "maintenance/segments.py",
        "return low if low == high else None",
        "return low",
        ["maintenance/test_segments.py::test_S38b_what_has_changed_is_counted_only_where_ranges_of_keys_do_not_tell"],
    ),
    Mutant(
        "segments whose keys overlap are committed (S38b)",
        "rows/key_ranges.py",
        "return all(one[1] <= other[0] for one, other in pairwise(known))",
        "return all(one[0] <= other[1] for one, other in pairwise(known))",
        ["maintenance/test_segments.py::test_S38b_rows_that_spark_arranges_otherwise_are_not_committed"],
    ),
    Mutant(
        "files are sorted by key in spite of a layout (S7c)",
        "stores/staging.py",
        "    if definition.clusterBy:\n",
        "    if definition.clusterBy and reads:\n",
        ["maintenance/test_clustering.py::test_S7c_files_are_sorted_by_the_columns_of_the_layout_and_then_by_key"],
    ),
    Mutant(
        "a purge hides that rows are to be sorted (S7c)",
        "maintenance/purge.py",
        "cluster_by=self.definition.stored_cluster_by or batch.cluster_by",
        "cluster_by=self.definition.stored_cluster_by",
        ["maintenance/test_clustering.py::test_S7c_S39a_a_purge_does_not_forget_that_rows_are_to_be_sorted"],
    ),
    Mutant(
        "many keys are compared with each row of a layout (S7c)",
        "rows/key_ranges.py",
        "if is_clustered and len(found) > _LISTED:",
        "if is_clustered and not found:",
        ["rows/test_key_ranges.py::test_S31_few_keys_far_apart_are_handed_to_the_files_by_value"],
    ),
    Mutant(
        "what changed in segments that are kept is dropped (S38b)",
        "maintenance/segments.py",
        "        pieces.append(RewriteTask(deltas, within",
        "        pieces or pieces.append(RewriteTask(deltas, within",
        ["maintenance/test_segments.py::test_S38b_few_changes_are_left_in_one_batch_that_is_laid_over_the_base"],
    ),
    Mutant(
        "what changed in segments that are kept forgets its tombstones (S38b)",
        "maintenance/compaction.py",
        "forget if piece.is_base else KEEP_ALL",
        "forget",
        ["maintenance/test_segments.py::test_S38b_a_tombstone_that_is_left_stays_however_old_it_is"],
    ),
    Mutant(
        "a kept segment that was folded meanwhile is lost (S38b)",
        "maintenance/compaction.py",
        "for b in (*kept, *landed.appended_batches)",
        "for b in landed.appended_batches",
        ["maintenance/test_segments.py::test_S38b_segments_that_are_kept_come_back_whatever_was_folded_beside"],
    ),
    Mutant(
        "a batch is held against no segment at all (S38b)",
        "reader.py",
        "if b.segment_of is None or _is_later(d, b)]",
        "if b.segment_of is None]",
        [
            "maintenance/test_segments.py::test_S13_S38b_what_is_left_does_not_make_reads_resolve_segments_it_cannot_meet"
        ],
    ),
    Mutant(
        "segments of a purged table keep the first key they began with (S38b)",
        "maintenance/purge.py",
        "        metrics |= key_ranges.metrics_of_first(self.definition, E.TRUE)\n",
        "",
        ["maintenance/test_segments.py::test_a_purged_key_is_forgotten_by_the_segment_that_began_with_it"],
    ),
    Mutant(
        "long first keys are cut as ranges are (S38b)",
        "rows/key_ranges.py",
        "    return values if all(",
        "    values = tuple(v[:_CHARACTERS] if isinstance(v, str) else v for v in values)\n    return values if all(",
        [
            "maintenance/test_segments.py::test_S38b_every_type_of_key_that_is_told_belongs_to_one_segment[parquet-long text]"
        ],
    ),
    Mutant(
        "maps with the same entries in another order count as changed (S41)",
        "rows/equality.py",
        'Sql(f"array_sort(transform(map_entries({value}), {each} -> {entry}))")',
        'Sql(f"transform(map_entries({value}), {each} -> {entry})")',
        ["history/test_changes.py::test_S41_rows_that_are_written_again_as_they_were_are_no_changes"],
    ),
    Mutant(
        "after a restore only what was appended is compared (S41)",
        "history/changes.py",
        "if any(c.removed for c in self.changing):",
        "if all(c.removed for c in self.changing):",
        [
            "history/test_changes.py::test_S41_keys_that_only_a_restore_has_changed_are_compared_beside_what_was_appended"
        ],
    ),
    Mutant(
        "a compaction counts as a commit that changed rows (S41)",
        "history/changes.py",
        "if c.changes_data",
        "if c.added or c.removed",
        [
            "history/test_changes.py::test_S41_of_a_delete_whose_tombstone_is_gone_no_commit_is_known_unless_there_was_one_only"
        ],
    ),
    Mutant(
        "pending batches that are apart from each other are not compared with the base (S13)",
        "reader.py",
        "zip(apart, near, strict=True) if not is_near)",
        "zip(apart, near, strict=True))",
        ["maintenance/test_segments.py::test_S13_D2_inserts_beside_compared_batches"],
    ),
    Mutant(
        "a pending batch that has a key twice is read as it is (S13)",
        "reader.py",
        "return batch.unique_keys and meeting(",
        "return meeting(",
        ["maintenance/test_segments.py::test_S13_inserts_of_new_keys_are_read_as_they_are"],
    ),
    Mutant(
        "a batch that holds no key of one appended batch is not read for the others (S41)",
        "rows/key_ranges.py",
        "not keys.is_empty and any(",
        "not keys.is_empty and all(",
        ["history/test_changes.py::test_S41_a_batch_is_read_if_it_may_hold_a_key_of_any_of_the_appended_ones"],
    ),
    Mutant(
        "two versions are compared by the oldest row of each key (S41)",
        "rows/resolution.py",
        'Sql(f"max_by({row}, {packed})")',
        'Sql(f"min_by({row}, {packed})")',
        ["history/test_changes.py::test_S41_net_changes_are_what_two_states_differ_in"],
    ),
    Mutant(
        "what a restore brings back counts as written before the versions compared (S41)",
        "history/changes.py",
        "(is_older, bigint(self.span.restored_at))",
        "(is_older, version)",
        ["history/test_changes.py::test_S41_a_restore_shows_what_it_changed"],
    ),
    Mutant(
        "of equal watermarks the earlier commit is said to win (S42)",
        "history/explain.py",
        "[*order.freshest_first(), ",
        "[*order.freshest_first()[:-1], *order.oldest_first()[-1:], ",
        ["history/test_explain.py::test_S42_every_stored_row_of_a_key_with_the_reason_it_won_or_lost"],
    ),
    Mutant(
        "a minor compaction forgets the rows that it replaces (H6)",
        "maintenance/archives.py",
        "    limit = GROWTH * sum(b.bytes for b in replaces)\n",
        "    if replaces:\n        return NOTHING\n    limit = GROWTH * sum(b.bytes for b in replaces)\n",
        [f"{_RACES}::test_H6_an_archive_that_others_become_part_of_does_not_get_newer_than_a_correction_in_between"],
    ),
    Mutant(
        "a large archive is not rewritten when a late row comes (H6)",
        "maintenance/archives.py",
        "if not archives or is_in_order(",
        "if archives or is_in_order(",
        [f"{_RACES}::test_H6_of_large_archives_only_those_are_written_anew_that_change"],
    ),
    Mutant(
        "pending rows are taken for later than resolved ones (H4)",
        "history/versions.py",
        "return bool(base) and all(",
        "return bool(base) or all(",
        [f"{_RACES}::test_H4_H6_one_late_row_and_versions_are_put_in_order_anew"],
    ),
    Mutant(
        "of later rows of a key the last one ends what is settled (H4)",
        "rows/resolution.py",
        'Sql(f"min({packed})")',
        'Sql(f"max({packed})")',
        [f"{_RACES}::test_H4_H6_what_is_later_than_all_that_is_settled_ends_it_at_one_look"],
    ),
    Mutant(
        "rows that a minor compaction has replaced are taken for later than the rows that replaced them (H6)",
        "history/versions.py",
        "return all(b.archive is None for b in pending)",
        "return True",
        [f"{_RACES}::test_H6_without_a_watermark_a_base_that_was_folded_is_not_before_the_rows_it_has_replaced"],
    ),
    Mutant(
        "a version that is corrected stays beside its correction (H2)",
        "history/versions.py",
        "rows.filter(E.not_(is_dropped)).selectExpr(",
        "rows.selectExpr(",
        [f"{_RACES}::test_H6_of_large_archives_only_those_are_written_anew_that_change"],
    ),
    Mutant(
        "of equal watermarks the first committed is the version (H2)",
        "history/versions.py",
        "time_order(self.definition).oldest_first()",
        '[*time_order(self.definition).oldest_first()[:-1], Sql(f"{C.SINCE} DESC")]',
        [f"{_RACES}::test_H6_of_large_archives_only_those_are_written_anew_that_change"],
    ),
    Mutant(
        "rows of archives count as the archive's version (H6)",
        "history/versions.py",
        "time_order(self.definition).oldest_first()",
        "[*time_order(self.definition).oldest_first()[:-1], C.VERSION, C.SINCE]",
        [f"{_RACES}::test_H6_an_archive_that_others_become_part_of_does_not_get_newer_than_a_correction_in_between"],
    ),
    Mutant(
        "live rows are read from archives (H6)",
        "log/model.py",
        "return tuple(b for b in self.batches if b.archive is None)",
        "return self.batches",
        [f"{_RACES}::test_H6_live_rows_are_not_read_from_archives"],
    ),
    Mutant(
        "archives leave out the tombstones between versions (H3, H6)",
        "maintenance/archives.py",
        """    arranged = rows.drop(C.VERSION, C.IS_ENDED)
""",
        """    arranged = rows.filter(f"NOT {E.is_tombstone(own)}").drop(C.VERSION, C.IS_ENDED)
""",
        [f"{_RACES}::test_H3_H6_tombstones_stay_between_versions_for_what_comes_late"],
    ),
    Mutant(
        "what ended once does not end earlier for a late row (H4, H6)",
        "history/versions.py",
        "E.any_of([E.is_null(C.ENDED), ends])",
        "E.any_of([E.is_null(C.ENDED), E.all_of([E.is_null(C.ENDED), ends])])",
        [f"{_RACES}::test_H6_S40_a_restore_brings_archives_back"],
    ),
    Mutant(
        "a late extract takes no notice of the next one (H11)",
        "feeds/snapshots.py",
        "following = None if next_moment is None else literal_sql(next_moment[0], kind)",
        "following = None if kind else literal_sql((next_moment or (None,))[0], kind)",
        ["history/test_unusual.py::test_H11_late_extracts_split_intervals_by_moments_of_every_type[TIMESTAMP_NTZ]"],
    ),
    Mutant(
        "what a merge's source was computed from may change (U3, S35)",
        "merge/execute/conflicts.py",
        """    if feed.stored is not None:
        asked.append(RowsUnchanged(or_batches=feed.truncate is not None))
""",
        "",
        [f"{_RACES}::test_U1_S35_what_nulls_are_filled_with_is_looked_up_again"],
    ),
    Mutant(
        "an extract that writes nothing is no change to others (H11, S35)",
        "merge/execute/conflicts.py",
        "is_other = commit.changes_data or commit.last(AddExtract) or commit.last(RestoreVersion)",
        "is_other = commit.changes_data or commit.last(RestoreVersion)",
        [f"{_RACES}::test_H11_S35_a_moment_that_is_taken_meanwhile_counts_though_nothing_was_written"],
    ),
    Mutant(
        "what lands while history is switched on leaves older rows as versions (H1)",
        "maintenance/alter.py",
        "looked = begins or is_stricter(snapshot.definition, definition)",
        "looked = is_stricter(snapshot.definition, definition)",
        [f"{_RACES}::test_H1_what_lands_beside_the_switch_is_a_version_or_older"],
    ),
    Mutant(
        "nulls are filled across events that are tombstones by themselves (U1)",
        "feeds/fill.py",
        "E.any_of([said, E.is_tombstone(self._own, ",
        "E.any_of([said, said or E.is_tombstone(self._own, ",
        ["history/test_unusual.py::test_U1_nothing_is_filled_across_an_event_that_is_a_tombstone_by_itself"],
    ),
    Mutant(
        "what changes nothing is left out after a row of its key that changed it (S22b)",
        "merge/compile/pipeline.py",
        'f"{C.KEEP} AND {C.UNCHANGED} AND NOT {C.KEY_CHANGES}"',
        'f"{C.KEEP} AND {C.UNCHANGED}"',
        ["merge/test_partial_updates.py::test_S22b_a_row_that_is_as_before_is_written_after_one_that_is_not"],
    ),
    Mutant(
        "a name that is dropped and added again finds what was stored under it (S43)",
        "schema/evolution.py",
        "retired_names=(*definition.retired_names, *_names(field)))",
        "retired_names=definition.retired_names)",
        ["maintenance/test_alter.py::test_S43_a_column_that_is_dropped_and_added_again_starts_empty[parquet]"],
    ),
    Mutant(
        "ranges of keys are known by the names of today (S43)",
        "schema/field.py",
        "return self.previous[0].name if self.previous else self.stored_as",
        "return self.name",
        ["maintenance/test_alter.py::test_S43_names_may_be_exchanged_in_one_alteration[parquet]"],
    ),
    Mutant(
        "what was stored before a type became wider is not read (S43)",
        "stores/column_mapping.py",
        "if e.until > oldest}",
        "if e.until > oldest + 1}",
        ["maintenance/test_alter.py::test_S43_a_wider_type_keeps_the_values_that_were_there[parquet]"],
    ),
    Mutant(
        "a purge knows keys by their names of today alone (S43)",
        "maintenance/purge.py",
        "return for_reading(definition, (c.definition for c in store.history() if c.definition is not None))",
        "return definition",
        ["maintenance/test_alter.py::test_S43_what_a_restore_has_left_behind_is_read_and_purged_all_the_same"],
    ),
    Mutant(
        "a merge is planned again though a name means something else (S35)",
        "merge/execute/schema_changes.py",
        "    if why:\n        raise ConcurrentCommitError(",
        "    if why and not plan:\n        raise ConcurrentCommitError(",
        ["maintenance/test_alter.py::test_S35_a_merge_that_would_mean_something_else_is_refused"],
    ),
    Mutant(
        "a merge that appends nothing adds columns (S44)",
        "merge/execute/executor.py",
        "if self.plan.columnsAdded and batches:",
        "if self.plan.columnsAdded:",
        ["schema/test_evolution.py::test_S44_a_merge_that_is_refused_or_does_nothing_alters_nothing"],
    ),
    Mutant(
        "tombstones are judged by checks (S45)",
        "spark/predicates.py",
        "return E.case([(E.not_(dead), E.not_(as_sql(check.condition)))])",
        "return E.case([(E.not_(E.FALSE), E.not_(as_sql(check.condition)))])",
        ["schema/test_constraints.py::test_S45_null_passes_tombstones_and_rows_that_are_not_written_are_not_judged"],
    ),
    Mutant(
        "rows for another table are not checked (S27, S45)",
        "merge/execute/outbox.py",
        'metrics[f"check_{i}"] = E.count_where(f"{fits} AND {broken}")',
        'metrics[f"check_{i}"] = E.count_where(f"{fits} AND {broken} AND false")',
        ["schema/test_constraints.py::test_S27_S45_rows_for_another_table_are_checked_before_the_merge_commits"],
    ),
    Mutant(
        "a check is added on top of rows that were not looked at (S45)",
        "maintenance/alter.py",
        "looked = begins or is_stricter(snapshot.definition, definition)",
        "looked = begins",
        ["schema/test_constraints.py::test_S45_rows_that_land_while_a_check_is_added_are_looked_at"],
    ),
    Mutant(
        "the columns of a check are taken from its text alone (S45)",
        "maintenance/alter.py",
        "            E.empty_frame(spark, others).select(F.expr(as_sql(condition))).schema  # noqa: B018\n",
        '            raise InvalidMergeError("")\n',
        ["schema/test_constraints.py::test_S45_what_a_check_is_about_stays_as_it_is"],
    ),
    Mutant(
        "an update sets what it does not mention to the default (S46)",
        "merge/analysis/analyze.py",
        "elif not action.keeps_the_rest and field.default is not None:",
        "elif field.default is not None:",
        [
            "schema/test_constraints.py::test_S46_inserts_put_the_default_where_nothing_is_said_and_updates_leave_what_is_there"
        ],
    ),
    Mutant(
        "an event without a column gives a key that was there the default (S46)",
        "merge/compile/key_timeline.py",
        "(C.IS_FILLED(i), filled), (is_unset, default)",
        "(is_unset, default), (C.IS_FILLED(i), filled)",
        [
            "schema/test_constraints.py::test_H9_S46_events_that_lack_a_column_leave_it_and_new_keys_get_the_default[True]"
        ],
    ),
    Mutant(
        "a clone of a past version forgets which keys were purged since (S40a)",
        "maintenance/clone.py",
        "    purged = [newest.purged] if newest.purged else []",
        "    purged = [snapshot.purged] if snapshot.purged else []",
        ["maintenance/test_clone.py::test_S40a_a_clone_of_a_past_version_is_that_version_and_can_be_written"],
    ),
    Mutant(
        "a clone does not see that keys are purged while it copies (S40a)",
        "maintenance/clone.py",
        "if source.snapshot().purged != newest.purged:",
        "if newest.purged != newest.purged:",
        ["maintenance/test_clone.py::test_S40a_a_key_that_is_purged_meanwhile_is_not_in_the_clone"],
    ),
    Mutant(
        "a clone takes what is left of a batch that loses files meanwhile (S40a)",
        "maintenance/clone.py",
        "!= (batch.files, batch.bytes):",
        "== (0, 1):",
        ["maintenance/test_clone.py::test_S40a_a_clone_beside_a_compaction_and_a_vacuum_begins_anew"],
    ),
    Mutant(
        "a clone with history knows no times but those of its batches (S40a)",
        "maintenance/clone.py",
        "if not snapshot.definition.history:",
        "if snapshot.definition is not None:",
        ["maintenance/test_clone.py::test_S40a_H2_a_clone_knows_when_rows_were_committed_whose_batches_are_gone"],
    ),
    Mutant(
        "rows of a clone count as committed with its first version (S40a)",
        "log/log.py",
        "return begins.commit_times[version]",
        "return begins.timestamp_ms",
        ["maintenance/test_clone.py::test_S38_a_clone_forgets_tombstones_when_its_original_does"],
    ),
    Mutant(
        "a feed goes on from a clone that lacks the version it knows (S40a)",
        "history/incremental.py",
        "if commit.initial_snapshot is not None:",
        "if commit.initial_snapshot is not None and not known:",
        ["maintenance/test_clone.py::test_S40a_feeds_go_on_from_a_clone_on_either_side"],
    ),
    Mutant(
        "two rows of a key become a table (S7b)",
        "maintenance/convert.py",
        '"repeated": E.count_where(f"{C.KEY_ROWS} > 1")',
        '"repeated": E.count_where(f"{C.KEY_ROWS} > 2")',
        ["maintenance/test_convert.py::test_S7b_what_is_refused_leaves_nothing_at_the_path"],
    ),
    Mutant(
        "tombstones that become a table keep what they hold (S7b)",
        "maintenance/convert.py",
        ".selectExpr(*tombstone_columns(definition, names))",
        "",
        ["maintenance/test_convert.py::test_S7b_a_frame_becomes_a_table_with_one_base"],
    ),
    Mutant(
        "a purge by condition looks at the newest version only (S39b)",
        "maintenance/purge.py",
        "return data_files(self.store, [i for i in self.store.directories() if not i.startswith(OUTBOX_PREFIX)])",
        "return data_files(self.store, [b.id for b in self.store.snapshot().batches])",
        ["maintenance/test_purge.py::test_S39b_a_key_goes_for_any_row_that_is_stored_anywhere"],
    ),
    Mutant(
        "a purge by condition looks once (S39b)",
        "maintenance/purge.py",
        "        if not count:\n",
        "        if not count or done:\n",
        ["maintenance/test_purge.py::test_S39b_what_lands_meanwhile_is_looked_at_with_the_condition"],
    ),
    Mutant(
        "literals of conditions get into the log (S36b)",
        "merge/execute/commit_info.py",
        '"value": "?"}',
        '"value": token.group()}',
        ["merge/test_commit_info.py::test_S36b_literals_are_left_out"],
    ),
    Mutant(
        "counts that were asked for stay unknown (S30b)",
        "merge/execute/planner.py",
        'return "withCounts() asks for all counts" if settings.counts else None',
        "return None",
        ["merge/test_commit_info.py::test_S30b_all_counts_are_known_on_demand"],
    ),
    Mutant(
        "an expression ends at a comma inside of parentheses (S32a)",
        "statements/lexer.py",
        'not self.done and (opened or not (self.symbol() == ")" or ends(self))):',
        'not self.done and not ends(self) and (opened or self.symbol() != ")"):',
        ["statements/test_parser.py::test_expressions_are_the_users_text_wherever_they_stand"],
    ),
    Mutant(
        "a common table expression hides no table (S32a)",
        "statements/lexer.py",
        "if any(e.alias.lower() == name.lower() for e in seen):",
        "if False:",
        [
            "statements/test_parser.py::test_tables_of_a_query_are_found_where_they_stand_and_common_table_expressions_are_none"
        ],
    ),
    Mutant(
        "a common table expression sees itself, not the table it is called like (S32a)",
        "statements/lexer.py",
        'place + bool(node.args.get("recursive"))',
        "place + 1",
        [
            "statements/test_parser.py::test_tables_of_a_query_are_found_where_they_stand_and_common_table_expressions_are_none"
        ],
    ),
    Mutant(
        "a version that a query asks for is passed over (S32a)",
        "statements/tables.py",
        "        if not reference.is_past:\n",
        "        if reference.version != -1:\n",
        ["statements/test_api.py::test_S32a_queries_see_past_versions"],
    ),
    Mutant(
        "one table is read once for each of its names, each time at the newest version (S32a)",
        "statements/tables.py",
        "if key not in self._known:",
        "if key:",
        ["statements/test_api.py::test_nothing_is_left_in_the_catalog_and_one_table_is_read_once"],
    ),
    Mutant(
        "the tables of queries in conditions stay behind as views (S32a)",
        "statements/tables.py",
        "self.spark.catalog.dropTempView(view)",
        "view.strip()",
        ["statements/test_api.py::test_S32a_queries_in_conditions_and_values_see_the_tables_of_the_statement"],
    ),
    Mutant(
        "an insert takes columns by name where a list says otherwise (S32a)",
        "statements/api.py",
        "rows = rows.toDF(*wanted)",
        "rows = rows.toDF(*sorted(wanted))",
        ["statements/test_api.py::test_S32a_inserts_go_by_position_by_a_list_or_by_name"],
    ),
    Mutant(
        "a delete without WHERE deletes nothing (S32a)",
        "statements/api.py",
        'table.deleteWhere("true" if statement.condition is None',
        'table.deleteWhere("false" if statement.condition is None',
        [
            "statements/test_api.py::test_S32a_updates_and_deletes_are_shorthands_of_the_chain[DELETE FROM events-<lambda>]"
        ],
    ),
    Mutant(
        "what comes too late is remembered (S27)",
        "merge/compile/outbox_rows.py",
        'Sql(f"{C.WRITTEN}.{C.EFFECT} IN ({effects})")',
        'Sql("true")',
        ["merge/test_outbox.py::test_S27_rows_before_an_update_or_delete_that_takes_effect"],
    ),
    Mutant(
        "rows for another table are merged without their marker (S27)",
        "maintenance/deliver_outbox.py",
        "    merge._with(transaction=done, expired_transactions=_expired(mine, snapshot)).execute()",
        "    merge.execute()",
        ["merge/test_outbox.py::test_S36_two_that_finish_at_once_write_the_rows_once[validate.done]"],
    ),
    Mutant(
        "a marker that a slow writer may look for is forgotten (S27)",
        "maintenance/deliver_outbox.py",
        "name.startswith(prefix) and since_ms < long_ago and",
        "name.startswith(prefix) and",
        ["merge/test_outbox.py::test_S27_markers_of_delivered_rows_are_forgotten_after_a_day"],
    ),
    Mutant(
        "a directory that looks abandoned is deleted without having been announced (S39a)",
        "maintenance/purge.py",
        'return announce_deletes(store, found, "PURGE") if found else found',
        "return found",
        ["maintenance/test_purge.py::test_S39a_a_directory_that_looks_abandoned_is_announced_before_it_goes"],
    ),
    Mutant(
        "a feed goes on from another table that took the place of its own (S36)",
        "history/incremental.py",
        "if fed_by != own.table_id and not is_origin:",
        "if False:",
        ["feeds/test_feeds.py::test_S36_no_increment_comes_from_a_table_that_took_the_place_of_another"],
    ),
    Mutant(
        "a merge commits what another table could not take (S27, S34)",
        "merge/execute/outbox.py",
        "            _check(destination, plan.spec.store.read_staged(staged), observed, plan.spec.clauses)\n",
        "",
        ["merge/test_outbox.py::test_S34_rows_that_the_other_table_could_not_take_refuse_the_merge"],
    ),
    Mutant(
        "half of a batch is committed that a vacuum has announced and the next one forgotten (S39)",
        "log/commit.py",
        "    if not written.isdisjoint(announced):\n",
        "    if not written:\n",
        [
            "stores/test_managed.py::test_S39_a_batch_that_two_vacuums_have_deleted_and_forgotten_is_not_committed"
            "[a slow task has written its file since]"
        ],
    ),
    Mutant(
        "rows from before a truncate are written (T1)",
        "merge/compile/pipeline.py",
        "C.KEEP: E.all_of([C.KEEP, E.not_(older)])",
        "C.KEEP: C.KEEP",
        [f"{_TRUNCATES}::test_T1_a_merge_beside_a_truncate_is_evaluated_again"],
    ),
    Mutant(
        "a row without a watermark is older than a truncate (T1, S10.3)",
        "rows/watermarks.py",
        "    if at is None:\n        return list(watermark)\n",
        "    if at is not None:\n        return list(watermark)\n",
        [f"{_TRUNCATES}::test_T1_every_merge_heeds_a_truncate"],
    ),
    Mutant(
        "an older truncate takes the place of a fresher one (T1)",
        "feeds/truncates.py",
        "            return self.events, spec  # it has deleted everything that this one would\n",
        "            pass\n",
        [f"{_TRUNCATES}::test_T1_an_older_truncate_after_a_fresher_one_changes_nothing"],
    ),
    Mutant(
        "a truncate removes no row of a batch that has fresher ones (T2)",
        "feeds/truncates.py",
        "        if stay and not spec.settings.counts",
        "        if not spec.settings.counts",
        [f"{_TRUNCATES}::test_T2_a_truncate_deletes_the_rows_of_batches_that_have_fresher_ones_too"],
    ),
    Mutant(
        "nulls are filled with what a truncate deleted (T1, U1)",
        "merge/compile/mend.py",
        "    if truncates:\n",
        "    if not truncates and truncates is None:\n",
        [f"{_TRUNCATES}::test_T1_filled_nulls_do_not_reach_over_a_truncate"],
    ),
    Mutant(
        "late versions do not end at a truncate (T1, H3)",
        "merge/compile/pipeline.py",
        "CASE WHEN {ended} THEN array(0, 1) ELSE array(0) END",
        "CASE WHEN {ended} THEN array(0) ELSE array(0) END",
        [f"{_TRUNCATES}::test_T1_with_history_every_merge_ends_its_late_rows_at_the_next_truncate"],
    ),
    Mutant(
        "the end of a late row takes the place of the row at the truncate (T1, S6)",
        "merge/compile/pipeline.py",
        "for c in (C.HELD_HERE, C.HELD)",
        "for c in (C.HELD_HERE,)",
        [f"{_TRUNCATES}::test_T1_S6_with_history_a_late_row_leaves_the_row_at_the_truncate[pending]"],
    ),
    Mutant(
        "a row that lands at a truncate beside a late row is no conflict (T1, S35)",
        "merge/compile/strategies.py",
        "not self.everything and not self.written_keys",
        "not self.everything",
        [f"{_TRUNCATES}::test_T1_S35_a_row_that_lands_at_the_truncate_beside_a_late_row_stays"],
    ),
    Mutant(
        "a truncate ends no version that the table has (T1, H3)",
        "feeds/events.py",
        "rows=events.rows.unionByName(rows.selectExpr(*shown)))\n",
        "rows=events.rows.unionByName(rows.selectExpr(*shown).limit(0)))\n",
        [f"{_TRUNCATES}::test_T1_with_history_a_truncate_ends_what_holds_at_its_place"],
    ),
    Mutant(
        "with history only the last truncate counts (T1)",
        "feeds/truncates.py",
        "TruncateTable(newest, version, earlier)",
        "TruncateTable(newest, version, [])",
        [f"{_TRUNCATES}::test_T3_history_has_the_truncates_of_its_version"],
    ),
    Mutant(
        "a restore leaves the truncates since (T3)",
        "log/actions.py",
        "dict.fromkeys(self.extracts), None\n",
        "dict.fromkeys(self.extracts), state.truncate\n",
        [f"{_TRUNCATES}::test_T3_restore_and_time_travel_know_their_truncate"],
    ),
    Mutant(
        "a merge that did not see a truncate is committed after it (T1, S35)",
        "merge/execute/conflicts.py",
        '        return "the table has been truncated, or a truncate has been taken back"\n',
        "        return None\n",
        [f"{_TRUNCATES}::test_T1_a_merge_beside_a_truncate_is_evaluated_again"],
    ),
    Mutant(
        "rows for another table are forgotten with their merge's process (S27)",
        "maintenance/deliver_outbox.py",
        "    if not snapshot.outbox:\n        return snapshot",
        "    if snapshot.outbox:\n        return snapshot",
        ["merge/test_outbox.py::test_S27_the_next_writer_finishes_what_a_dead_process_has_left[merge]"],
    ),
    Mutant(
        "an unset column has the value of the row before, not that of the last row that sets it (U1)",
        "merge/compile/key_timeline.py",
        "}, {C.SET_AT(i)})",
        "}, {C.PLACE})",
        [f"{_UNCHANGED}::test_U1_U7_every_order_and_every_batching_gives_the_same_rows"],
    ),
    Mutant(
        "events whose nulls leave columns unset are evaluated for their keys, and again for their values (S32)",
        "feeds/fill.py",
        "return attrs.evolve(events, rows=once.frame), filling.with_unset_columns(once.observed)",
        "return events, filling.with_unset_columns(once.observed)",
        [f"{_UNCHANGED}::test_S32_events_are_evaluated_once_whatever_they_leave_unset[ignoreNullUpdates]"],
    ),
    Mutant(
        "the nulls of deletes leave columns unset (U6)",
        "feeds/fill.py",
        "E.all_of([lives, E.any_of(map(self.unset, column.all()))])",
        "E.any_of(map(self.unset, column.all()))",
        [f"{_UNCHANGED}::test_U6_ignored_nulls_need_registers_only_where_there_are_some"],
    ),
    Mutant(
        "text that is no key refuses the merge despite the quarantine (S17a)",
        "merge/execute/quarantine.py",
        "    if not wrong or ",
        "    if True or ",
        ["merge/test_key_types.py::test_S17a_S47_text_that_a_condition_cannot_cast_goes_into_the_quarantine[INT]"],
    ),
    Mutant(
        "a feed that names its table skips what it cannot read as another table's (F3)",
        "feeds/wire.py",
        "CASE WHEN {names[-1]} <> '' THEN concat_ws(",
        "CASE WHEN true THEN concat_ws(",
        ["feeds/test_feed_fuzz.py::test_F3_a_feed_that_names_its_table_rejects_what_does_not_say_its_own[maxwell]"],
    ),
    Mutant(
        "a delete is rejected for a value of the row that it deletes (F3, S9)",
        "feeds/wire_rows.py",
        "applies = is_row if f.name in self.own.primaryKey else is_set",
        "applies = is_row",
        ["feeds/test_feed_fuzz.py::test_F3_S9_a_delete_is_judged_by_its_key_alone[maxwell]"],
    ),
    Mutant(
        "a rejected event is replayed at the place of its message (F2)",
        "feeds/formats/wal2json.py",
        "coalesce(arrival, stated, {computed}) AS sequence",
        "coalesce(arrival, {computed}) AS sequence",
        ["feeds/test_feed_values.py::test_S47_F2_a_rejected_event_is_replayed_at_its_own_place[wal2json 2]"],
    ),
    Mutant(
        "deletion vectors that were whole once are whole for ever (D2)",
        "stores/deletion_vectors.py",
        "if self._whole.get(vectors.id) == file:",
        "if vectors.id in self._whole:",
        [
            "maintenance/test_deletion_vectors.py::test_D2_vectors_that_are_damaged_are_ignored_with_one_warning[truncate]"
        ],
    ),
    Mutant(
        "the range of another batch is believed (S40)",
        "stores/managed.py",
        'if found.get("batch", batch_id) == batch_id:',
        "if found:",
        ["merge/test_lookup.py::test_S40_the_range_of_another_batch_limits_nothing"],
    ),
    Mutant(
        "a log whose newest entry is lost is read without it (S33)",
        "log/log.py",
        "if snapshot.table_id and seen > snapshot.version:",
        "if seen > snapshot.version + 1:",
        ["log/test_log.py::test_s33_a_lost_end_that_a_hint_or_a_handle_remembers_is_noticed"],
    ),
    Mutant(
        "batches that do not say what they leave unset leave nothing unset (U2)",
        "rows/registers.py",
        "return None if None in named else frozenset(",
        "return frozenset(",
        ["log/test_format.py::test_U4_U7_late_events_mend_what_was_stored_unset"],
    ),
    Mutant(
        "columns that no event of the last batch leaves unset have no registers (U4)",
        "rows/registers.py",
        "if c.path[0] in asked or stored is None or any(part.id in stored for part in c.all())",
        "if c.path[0] in asked or stored is None",
        [f"{_UNCHANGED}::test_U2_only_columns_that_some_row_leaves_unset_have_registers"],
    ),
    Mutant(
        "a compaction forgets what its rows leave unset (U5)",
        "maintenance/rewrite.py",
        "unset = registers.unset_in(self.replaces)",
        "unset = ()",
        [f"{_UNCHANGED}::test_U2_only_columns_that_some_row_leaves_unset_have_registers"],
    ),
    Mutant(
        "a batch does not say what its rows leave unset (U2)",
        "merge/execute/executor.py",
        "unset = known if",
        "unset = () if",
        [f"{_UNCHANGED}::test_U2_only_columns_that_some_row_leaves_unset_have_registers"],
    ),
    Mutant(
        "a column that comes with the batch is null where a message leaves it out (S44, U1)",
        "feeds/feed_merge.py",
        "rows, found = _evaluated(feed, own, None, except_columns, is_kept)",
        "rows, _ = _evaluated(feed, own, None, except_columns, is_kept)",
        ["feeds/test_debezium.py::test_S44_U1_a_new_column_that_a_message_of_the_batch_leaves_out_keeps_its_value"],
    ),
    Mutant(
        "a partial row is stored as a whole one (U2)",
        "merge/compile/key_timeline.py",
        "as_map(mine))]))]",
        "as_map([]))]))]",
        [f"{_UNCHANGED}::test_U4_a_late_event_mends_what_the_row_leaves_unset"],
    ),
    Mutant(
        "columnsToUpdate names the unset columns (U2)",
        "feeds/events.py",
        "else F.array_except(every, names)",
        "else names",
        [f"{_UNCHANGED}::test_U6_columns_to_update_is_the_complement"],
    ),
    Mutant(
        "late rows of other merges mend nothing (U3)",
        "merge/compile/mend.py",
        " or bool(unset and prune_batches",
        " or False and bool(unset and prune_batches",
        [f"{_UNCHANGED}::test_U3_U4_late_rows_of_other_merges_mend_too"],
    ),
    Mutant(
        "rows of other merges look for partial rows that cannot be fresher (U3)",
        "merge/compile/mend.py",
        "if b.partial and not is_at_least(batch.watermark_min, b.watermark_max, definition)]",
        "if b.partial]",
        [f"{_UNCHANGED}::test_U3_rows_that_cannot_be_late_are_not_looked_up"],
    ),
    Mutant(
        "a partial row that landed concurrently is not mended (U3, S35)",
        "merge/execute/conflicts.py",
        ", Predicate(dependence.mends)]",
        "]",
        [f"{_UNCHANGED}::test_U3_S35_a_concurrent_partial_row_is_mended"],
    ),
    Mutant(
        "an event that is delivered again writes the row again (U4)",
        "merge/compile/key_timeline.py",
        ", E.not_(is_equal)])",
        "])",
        [f"{_UNCHANGED}::test_U4_an_older_or_repeated_event_mends_nothing"],
    ),
    Mutant(
        "a mended row keeps its old register (U4)",
        "merge/compile/key_timeline.py",
        "E.case([(C.IS_FILLED(i), known)], since(part, stored))",
        "since(part, stored)",
        [f"{_UNCHANGED}::test_U2_registers_compare_sequences_of_any_type"],
    ),
    Mutant(
        "a late truncate mends no row (U4, T1)",
        "merge/compile/mend.py",
        "        keys = keys.unionByName(unset.selectExpr",
        "        keys.unionByName(unset.selectExpr",
        [f"{_UNCHANGED}::test_U4_a_late_truncate_sets_null"],
    ),
    Mutant(
        "a compaction makes every row whole (U5)",
        "maintenance/rewrite.py",
        "E.all_of([E.is_not_null(C.UNSET), forget.is_old])",
        "E.is_not_null(C.UNSET)",
        [f"{_UNCHANGED}::test_U5_registers_are_kept"],
    ),
    Mutant(
        "no count says that rows may be older than the registers that a compaction has dropped (U5)",
        "maintenance/compaction.py",
        'if not (observed["forgotten"] or observed["settled"])',
        'if not observed["forgotten"]',
        [f"{_UNCHANGED}::test_U5_a_compaction_makes_rows_whole_after_the_retention"],
    ),
    Mutant(
        "a purge forgets that other rows are partial (U5)",
        "maintenance/purge.py",
        'partial=counted.get("partial", 0)',
        "partial=0",
        [f"{_UNCHANGED}::test_U5_registers_are_kept"],
    ),
    Mutant(
        "a struct that is not null sets all its fields (U6)",
        "feeds/fill.py",
        "[E.is_null(part.value(self.value(name)))]",
        "[E.is_null(self.value(name))]",
        [f"{_UNCHANGED}::test_U6_ignored_nulls_and_struct_fields_have_registers"],
    ),
    Mutant(
        "the old key keeps its row (U7)",
        "feeds/key_changes.py",
        "    return with_deletes(there, own,",
        "    return there, count\n    return with_deletes(there, own,",
        [f"{_KEY_CHANGES}::test_U7_a_row_keeps_what_its_old_key_has_set_and_the_old_key_is_deleted"],
    ),
    Mutant(
        "a change of the key fills its own row (U7, S47)",
        "merge/compile/mend.py",
        "(sets, at), *moved]",
        "(sets, at)]",
        ["feeds/test_judging.py::test_S47_U7_a_change_of_the_key_that_leaves_a_required_column_never_set_is_rejected"],
    ),
    Mutant(
        "a value from an earlier key is what its event shows instead of it (U7)",
        "merge/compile/mend.py",
        "E.any_of([is_dead, *brings])",
        "is_dead",
        [f"{_KEY_CHANGES}::test_U7_a_late_change_of_the_key_brings_no_placeholder"],
    ),
    Mutant(
        "rows of the old key from after the change are taken, too (U7)",
        "merge/compile/earlier_keys.py",
        "earlier = earlier_places(of_key)",
        'earlier = earlier_places(of_key).replace("1 PRECEDING", "UNBOUNDED FOLLOWING")',
        [f"{_KEY_CHANGES}::test_U7_a_late_event_of_the_old_key_mends_the_row"],
    ),
    Mutant(
        "the changes of a key before a change of it are forgotten (U7)",
        "merge/compile/earlier_keys.py",
        'while asked.observed["open"]:',
        "while False:",
        [f"{_KEY_CHANGES}::test_U7_a_row_whose_key_changes_twice_in_a_batch"],
    ),
    Mutant(
        "late rows do not find the rows that have left their key (U7)",
        "merge/compile/earlier_keys.py",
        'E.numbered_in(C.ELEMENT, "k", own.primaryKey), C.LATE_KEY',
        "C.ROW_KEY.all(own.primaryKey), C.LATE_KEY",
        [f"{_KEY_CHANGES}::test_U7_a_late_event_of_the_old_key_mends_the_row"],
    ),
    Mutant(
        "a rejected event fills other rows (S47, U1)",
        "feeds/judging.py",
        "accepted = once.frame.where(E.is_null(C.REASON)).select",
        "accepted = once.frame.select",
        [f"{_JUDGING}::test_S47_U1_a_rejected_event_fills_nothing_in_any_order_and_batches[False]"],
    ),
    Mutant(
        "a late change of a key deletes the old row, though its event is rejected (S47, U7)",
        "feeds/key_changes.py",
        "also = (*events.carried, events.number) if events.number else ()",
        "also = ()",
        [f"{_JUDGING}::test_S47_U7_a_late_change_of_the_key_under_onStale_error_is_rejected_as_a_whole"],
    ),
    Mutant(
        "a stored row takes values that break a rule (S47, U4)",
        "feeds/judging.py",
        'elif once.observed["mended"]:',
        "elif False:",
        [
            f"{_JUDGING}::test_S47_U4_an_event_that_would_mend_a_row_so_that_it_breaks_a_rule_can_be_replayed[constraint]"
        ],
    ),
    Mutant(
        "late rows of other merges mend only rows of their own key (U7)",
        "merge/compile/mend.py",
        "return any(b.moved for b in unset) or ",
        "return ",
        [f"{_KEY_CHANGES}::test_U7_rows_of_other_merges_mend_in_files_that_do_not_have_their_key"],
    ),
    Mutant(
        "a purged key stays in the rows that came from it (U7, S39a)",
        "maintenance/purge.py",
        "rows = self._without_earlier_keys(rows) if batch.moved else rows",
        "rows = rows",
        [f"{_KEY_CHANGES}::test_U5_U7_a_purge_of_an_old_key_removes_it_from_the_rows_that_came_from_it"],
    ),
    Mutant(
        "a row of a batch that has none is not looked for under earlier keys: none is counted (U7)",
        "rows/registers.py",
        "[where, E.is_not_null(C.UNSET), moved]",
        "[where, E.is_not_null(C.UNSET), E.FALSE]",
        [f"{_KEY_CHANGES}::test_U7_a_late_event_of_the_old_key_mends_the_row"],
    ),
    Mutant(
        "a purged key comes back as the old key of an event (U7, S39a)",
        "feeds/key_changes.py",
        "if purged is not None else rows",
        "if False else rows",
        [f"{_KEY_CHANGES}::test_S39a_U7_a_purged_key_does_not_come_back_as_an_old_key"],
    ),
    Mutant(
        "a late row does not look at partial rows that a restore brings back (U3, S35)",
        "merge/execute/conflicts.py",
        "if any(commit.removed for commit in commits) and",
        "if False and",
        [f"{_UNCHANGED}::test_U3_S35_a_partial_row_that_a_restore_brings_back_is_mended"],
    ),
    Mutant(
        "rows of the initial snapshot are not older than all changes (F2)",
        "feeds/formats/debezium.py",
        "NOT IN ('false', 'incremental')\")",
        "IN ('none')\")",
        [f"{_DEBEZIUM}::test_F2_a_change_that_commits_after_the_snapshot_wins_over_it"],
    ),
    Mutant(
        "a number of the sequence is not padded (F2)",
        "feeds/sequences.py",
        "lpad(lower(hex({not_negative})), 16, '0')",
        "lower(hex({not_negative}))",
        [f"{_DEBEZIUM}::test_F2_the_sequence_is_the_position_in_the_log"],
    ),
    Mutant(
        "a new epoch keeps what its snapshot does not have (F2)",
        "feeds/feed.py",
        "f'{self.options.epoch:04}'",
        "'0000'",
        [f"{_DEBEZIUM}::test_F2_a_new_epoch_restarts_without_the_rows_that_its_snapshot_does_not_have"],
    ),
    Mutant(
        "a column that an update lacks is null (F1, U6)",
        "feeds/wire_rows.py",
        "{E.case([(Sql('is_partial'), lacking)], nothing)}",
        "{nothing}",
        [f"{_DEBEZIUM}::test_U6_columns_that_an_update_lacks_are_unchanged_and_those_that_an_insert_lacks_are_null"],
    ),
    Mutant(
        "a value that does not fit becomes null (F3)",
        "feeds/wire_values.py",
        "return E.all_of([E.is_not_null(text), E.is_null(value)])",
        'return Sql("false")',
        ["feeds/test_maxwell.py::test_F3_fields_of_other_types_are_never_an_event"],
    ),
    Mutant(
        "of two names that differ only by case one is taken (F3)",
        "feeds/wire_rows.py",
        'shown["op"] = E.case([(is_doubled, Sql("CAST(NULL AS STRING)"))], shown["op"])',
        "pass",
        [f"{_DEBEZIUM}::test_F3_names_that_differ_only_by_case_reject_their_message_alone"],
    ),
    Mutant(
        "messages that are not events are not counted (F4)",
        "feeds/feed_merge.py",
        'read=sum(g["n"] for g in groups)',
        'read=sum(g["n"] for g in events)',
        [f"{_DEBEZIUM}::test_F3_each_message_is_an_event_skipped_or_rejected_with_a_reason"],
    ),
    Mutant(
        "other rows of a rejected source row are written (S47)",
        "merge/execute/quarantine.py",
        "C.KEEP: E.all_of([C.KEEP, E.is_null(reason)])",
        "C.KEEP: E.all_of([C.KEEP])",
        [f"{_QUARANTINE}::test_S47_all_rows_of_a_source_row_go_together"],
    ),
    Mutant(
        "ambiguous rows refuse the merge in spite of its quarantine (S47)",
        "merge/execute/quarantine.py",
        "_with_ambiguous(plan, compiled.rows) if observed",
        "None if observed",
        [f"{_QUARANTINE}::test_S47_each_row_that_would_refuse_the_merge_has_a_reason_and_all_others_are_merged"],
    ),
    Mutant(
        "what a late row mends refuses the merge in spite of its quarantine (S47, U4)",
        "merge/execute/quarantine.py",
        'if marked is None and observed["broken_mended"]:',
        "if False:",
        [f"{_QUARANTINE}::test_S47_S12_S27_U4_a_late_row_is_rejected_for_what_it_mends_unless_it_is_ambiguous"],
    ),
    Mutant(
        "history rows of rejected rows are computed (S47, S27)",
        "merge/compile/outbox_rows.py",
        "if C.REASON in rows.columns else E.TRUE",
        "if False else E.TRUE",
        [f"{_QUARANTINE}::test_S47_S27_what_a_rejected_row_would_insert_is_not_computed"],
    ),
    Mutant(
        "any share of rows may be rejected (S47)",
        "merge/execute/quarantine.py",
        "total / read <= quarantine.max_fraction",
        "total / read >= 0",
        [f"{_QUARANTINE}::test_S47_more_than_maxFraction_refuse_the_merge_and_leave_no_trace"],
    ),
    Mutant(
        "equal rejected rows are one (S47)",
        "merge/execute/quarantine.py",
        "f\"CASE WHEN nth = 1 THEN {column} ELSE concat({column}, '#', nth) END\"",
        'f"{column}"',
        [f"{_QUARANTINE}::test_S47_equal_rows_are_counted_each"],
    ),
    Mutant(
        "messages without a table are lost (S47)",
        "ingest/micro_batch.py",
        "[] if unreadable else routed.lost",
        "[]",
        [f"{_INGEST}::test_S47_messages_that_name_no_table_are_kept"],
    ),
    Mutant(
        "a micro-batch that comes again is merged again (S36)",
        "ingest/micro_batch.py",
        "table.foreachBatch(merge, app, results.append)",
        "table.foreachBatch(merge, app + str(time.time()), results.append)",
        [f"{_INGEST}::test_S36_a_micro_batch_that_comes_again_is_not_merged_again"],
    ),
    Mutant(
        "a table that fails takes the others along (S36)",
        "ingest/micro_batch.py",
        "except Exception as error:  # noqa: BLE001 - the other tables go on",
        "except ZeroDivisionError as error:",
        [f"{_INGEST}::test_a_table_that_cannot_be_created_stops_the_stream_once_the_others_are_done"],
    ),
    # Slips that anybody makes: of one character, one operator, one argument.
    Mutant(
        "of rows with equal watermarks the smaller wins (S15)",
        "rows/resolution.py",
        'Sql(f"{value} {way} {nulls}") for value in self.ties',
        'Sql(f"{value} ASC NULLS LAST") for value in self.ties',
        ["test_reader.py::test_S15_then_the_row_whose_remaining_columns_are_larger_in_schema_order"],
    ),
    Mutant(
        "a column that must not be null is null on a tombstone, and others are zero (S9)",
        "rows/tombstones.py",
        '''zero where null is not allowed."""
    return E.null_of(field) if field.nullable else zero(field)''',
        '''zero where null is not allowed."""
    return zero(field) if field.nullable else E.null_of(field)''',
        ["merge/test_merge.py::test_S9_a_tombstone_holds_key_watermark_and_tombstone_only_on_every_path"],
    ),
    Mutant(
        "the oldest row of a key counts, not the freshest (S30a)",
        "merge/execute/metrics.py",
        "*Order.of(definition).freshest_first(),",
        "*Order.of(definition).oldest_first(),",
        ["merge/test_merge.py::test_S12_rows_with_different_watermarks_freshest_wins"],
    ),
    Mutant(
        "a single null key is let through (S2)",
        "merge/execute/validate.py",
        'if observed["null_keys"]:',
        'if observed["null_keys"] > 1:',
        ["merge/test_merge.py::test_S34_null_key_is_refused_with_its_clause_or_call"],
    ),
    Mutant(
        "a purge beside a merge is no conflict (S39a)",
        "merge/execute/conflicts.py",
        "asked += [PurgeUnchanged(), Predicate",
        "asked += [Predicate",
        [
            "maintenance/test_maintenance.py::test_S39a_a_merge_that_reads_nothing_heeds_a_purge_that_lands_before_it_stages"
        ],
    ),
    Mutant(
        "other engines read the first of two commits (S6)",
        "interop/query.py",
        "own.primaryKey), order.freshest_first())",
        "own.primaryKey), [*order.freshest_first()[:-1], *order.oldest_first()[-1:]])",
        ["interop/test_query.py::test_S3_S6_late_rows_lose_ties_go_to_the_later_commit_and_null_is_the_smallest"],
    ),
    Mutant(
        "an update of Maxwell's leaves the row of its old key (F1)",
        "feeds/formats/maxwell.py",
        'Sql("type = \'update\'"), Sql("old")',
        'Sql("type = \'insert\'"), Sql("old")',
        ["feeds/test_maxwell.py::test_F1_a_changed_key_moves_the_row_and_what_the_update_lacks_stays"],
    ),
    Mutant(
        "two instants of one local time are one key (S17a)",
        "spark/casts.py",
        "CastPolicy.EXACT if is_local or differs else way",
        "CastPolicy.EXACT if differs else way",
        ["merge/test_key_types.py::test_S17a_one_local_time_of_two_instants_is_the_key_of_one"],
    ),
    Mutant(
        "INSERT with more columns than values is read (S32a)",
        "statements/parser.py",
        "if len(columns) != len(values):",
        "if len(columns) < len(values):",
        ["statements/test_parser.py::test_what_cannot_be_done_is_refused_where_it_stands"],
    ),
    Mutant(
        "a batch of a commit whose outcome is unknown is deleted (S33)",
        "stores/staging.py",
        "    except CommitStateUnknown:\n        raise\n",
        "",
        ["merge/test_executor.py::test_S33_files_stay_if_nobody_knows_whether_their_commit_took_place"],
    ),
)


# Running --------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Verdict:
    """What became of a mutant; ``noticed_by`` is empty for a survivor."""

    mutant: Mutant
    noticed_by: str
    seconds: float


def copied(directory: Path) -> Path:
    """A copy of what the tests need, apart from the package's own directory."""
    for name in COPIED:
        source, target = ROOT / name, directory / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return directory


def run(copy: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Runs some tests on the copy until the first fails; in this process, so that the JVM starts once and stays warm."""
    _forget_modules_of(copy)
    options = ["-x", "-q", "-rfE", "-p", "no:cacheprovider", "--rootdir", str(copy), "-c", str(copy / "pyproject.toml")]
    with redirect_stdout(io.StringIO()) as output:
        code = pytest.main([*options, *(f"{copy}/tests/{test}" for test in tests)])
    return int(code), output.getvalue()


def _forget_modules_of(copy: Path) -> None:
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(copy)):
            del sys.modules[name]


def tried(copy: Path, mutant: Mutant) -> Verdict:
    """Breaks the copy, runs the mutant's tests, and mends it."""
    path, start = copy / "trinitymerge" / mutant.file, time.perf_counter()
    path.write_text(mutant.mutated(), "utf-8")
    try:
        code, output = run(copy, mutant.tests)
    finally:
        shutil.copy(ROOT / "trinitymerge" / mutant.file, path)
    if code not in (0, 1) or (broken := _BROKEN.search(output)):
        why = f"exit code {code}" if code not in (0, 1) else f"it does not even run: {broken[0].strip()}"  # type: ignore[index]
        raise RuntimeError(f"{mutant.name}: {why}\n{output[-4000:]}")
    found = _OUTCOME.search(output)
    return Verdict(mutant, found[1] if code and found else "", time.perf_counter() - start)


def check_unbroken(copy: Path, mutants: Sequence[Mutant]) -> None:
    """The tests must pass where nothing is broken."""
    code, output = run(copy, dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    if code:
        raise RuntimeError(f"The tests do not pass on the package as it is:\n{output[-4000:]}")


# Reporting ------------------------------------------------------------------------------------------------------------


def row(verdict: Verdict) -> str:
    """A mutant's line in tests/README.md."""
    noticed_by = f"`{verdict.noticed_by}`" if verdict.noticed_by else "**nobody**"
    return f"| {verdict.mutant.name} | `{verdict.mutant.file}` | {noticed_by} |"


def write_table(verdicts: Sequence[Verdict]) -> None:
    """Updates the table; the lines of mutants that were not tried stay."""
    before, rest = README.read_text("utf-8").split(BEGIN)
    old, after = rest.split(END)
    tried_now = {verdict.mutant.name: row(verdict) for verdict in verdicts}
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in old.splitlines() if line.startswith("| ")}
    rows = [line for m in MUTANTS if (line := tried_now.get(m.name, lines.get(m.name)))]
    table = "\n".join(["| the bug | in | noticed by |", "|---|---|---|", *rows])
    README.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", "utf-8")


def main(arguments: Sequence[str]) -> int:
    sys.dont_write_bytecode = True  # what is compiled from a mutant must not outlive it
    chosen = [m for m in MUTANTS if not arguments or any(word.lower() in m.name.lower() for word in arguments)]
    verdicts = []
    with tempfile.TemporaryDirectory() as directory:
        # Or pytest in another process deletes what the JVM of this one writes, and tests fail for that.
        os.environ["PYTEST_DEBUG_TEMPROOT"] = directory
        copy = copied(Path(directory).resolve())
        check_unbroken(copy, chosen)
        for mutant in chosen:
            verdicts.append(verdict := tried(copy, mutant))
            outcome = f"killed by {verdict.noticed_by}" if verdict.noticed_by else "SURVIVED"
            print(f"{verdict.seconds:5.0f} s  {mutant.name}: {outcome}", flush=True)
    survivors = sum(not verdict.noticed_by for verdict in verdicts)
    print(f"{len(verdicts) - survivors} of {len(verdicts)} mutants killed")
    write_table(verdicts)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
