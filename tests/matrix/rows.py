"""Rows of docs/faults.md that are no points: what breaks otherwise, what is promised, and the test that proves it.

To add a row: write its line below, with `held` as FILE.TEST (a file of tests or tests/matrix, or FOLDER/FILE); give that test
the marker `@pytest.mark.proves("...")` with the row's first column (of a control: its guard); run `make faults`. A row
names the control that has its checker, or none; the page lists those without one. A test compares
both ways: a row without its marker fails, and so does a marker without a row.
"""

from __future__ import annotations

from typing import NamedTuple

from matrix.points import Outcome
from matrix.targets import PREVIEWED

_STILL = "two drivers, the older one is suspended at any durable effect, and resumes"
_STANDBY = "a driver with a standby killed with -9 between prepare and commit"
_DIRTY = "; ".join(PREVIEWED)


class Exactly(NamedTuple):
    name: str
    does: str
    sinks: str
    previewed: str
    where: str
    held: str  # FILE.TEST, or FOLDER/FILE.TEST below tests/
    control: str = ""  # the guard of a negative control that has the same checker; empty if there is none


class AtOnce(NamedTuple):
    name: str
    loses: str  # at-most-once
    repeats: str  # at-least-once
    sinks: str
    where: str
    held: str
    control: str = ""


class Refusal(NamedTuple):
    what: str
    why: str
    held: str
    control: str = ""


class Control(NamedTuple):
    promise: str
    guard: str
    held: str


EXACTLY = [
    Exactly("a sink's target, table or ledger row is missing", "refuses: SW-SINK-LOST", "all", "-", "local",
            "connectors/test_lost.test_a_lost_target_is_refused", "the check of the ledger row before a start"),
    Exactly("the job's root restored from a backup, sinks ahead", Outcome.CATCHES_UP.value, "all", "-", "local",
            "connectors/test_restored.test_a_job_goes_on_after_its_folder_was_restored"),
    Exactly("a crash while files are merged, readers check at every step", "all of the commit or nothing", "Parquet", "-",
            "local", "connectors/test_parquet_merging.test_readers_see_all_of_a_commit_that_merges_or_nothing",
            "the exchange of two folders in one step"),
    Exactly("a power failure while files are merged", "all of the commit or nothing", "Parquet", "-", "local",
            "connectors/test_parquet_sink.test_a_power_cut_at_any_operation",
            "files that are synced before they are renamed"),
    Exactly("a preview of a committed or abandoned checkpoint", "is not shown", "-", _DIRTY, "local",
            "connectors/test_sql_targets.test_previews_of_a_checkpoint_that_is_over_are_not_shown",
            "the mark that the view of previews uses"),
    Exactly("a key too long for an index", "a dead letter, if on_error allows it", "PostgreSQL, upsert", "-", "local",
            "connectors/test_poison.test_a_key_that_is_too_long_for_an_index", "the codes of PostgreSQL for rejected rows"),
    Exactly("a preview half written", Outcome.COMPUTES_AGAIN.value, "-", _DIRTY, "local",
            "test_isolation.test_of_an_epoch_that_came_to_nothing_nothing_is_shown", "removal of previews"),
    Exactly("readers check at every step", "readers see complete, committed epochs only", "all", _DIRTY, "local",
            "test_isolation.test_readers_look_at_every_step", "staging of rows"),
    Exactly("database restarted in mid commit", "fails, then rolls forward", "PostgreSQL, append and upsert",
            "the same", "local, soak", "test_servers.test_a_database_is_restarted_in_the_middle_of_a_commit"),
    Exactly("Redis killed between two keys of a commit", "fails or continues; keys are written again with the same result",
            "Redis", "-", "local, soak", "test_servers.test_a_redis_is_killed_between_two_keys_of_a_commit"),
    Exactly("database's answer to COMMIT lost", "reads the ledger, and continues", "PostgreSQL, append and upsert", "-", "local",
            "test_servers.test_the_answer_to_a_commit_is_lost"),
    Exactly("Kafka on both sides, any point", "as with other sinks", "Kafka", "-", "local, soak",
            "test_kafka_cells.test_a_job_from_topic_to_topic_that_breaks_ends_with_the_same_results",
            "the ledger record, in Kafka"),
    Exactly("a Kafka broker killed or restarted in mid transaction", "fails or continues, then rolls forward", "Kafka", "-",
            "local, soak",
            "connectors/test_kafka_faults.test_a_broker_that_is_killed_or_restarted_in_the_middle_of_a_transaction",
            "the ledger record, in Kafka"),
    Exactly("a Kafka broker does not answer to a commit", "asks again, or restarts and reads the ledger", "Kafka", "-", "local",
            "connectors/test_kafka_faults.test_a_commit_that_is_not_answered_is_settled"),
    Exactly("a Kafka broker whose disk is full", "fails, then resumes", "Kafka", "-", "local",
            "connectors/test_kafka_faults.test_a_broker_whose_disk_is_full"),
    Exactly("a driver that was taken over in mid transaction goes on, in Kafka", "is refused by the broker", "Kafka", "-", "local",
            "connectors/test_kafka_sink.test_a_driver_that_was_taken_over_in_the_middle_of_a_transaction_writes_nothing",
            "one transactional id of all drivers, in Kafka"),
    Exactly(_STILL, "the older driver is refused by its fence", "SQLite + log; Parquet; PostgreSQL, upsert; Redis", _DIRTY, "local",
            "test_two_drivers.test_a_driver_may_stand_still_anywhere", "the fence"),
    Exactly(_STANDBY, "the standby takes over, and rolls forward", "SQLite, append and upsert", "-", "local, Spark",
            "test_standby_processes.test_a_standby_goes_on_when_the_holder_is_killed", "the ledger, at a takeover by a standby"),
    Exactly("a driver with a standby suspended past its lease, and resumed", "the older driver is refused by its fence",
            "SQLite, append and upsert", "-", "local, Spark",
            "test_standby_processes.test_a_holder_that_was_stopped_and_wakes_up_after_the_takeover_changes_nothing"),
    Exactly("several standbys of one driver", "one takes over, the others go on waiting", "SQLite, append and upsert", "-", "local",
            "run/test_standby.test_one_of_two_heirs_claims_the_job", "a standby claims only the fence after the one it watched"),
    Exactly("a task lost, or run twice", "counts once", "SQLite + log", "-", "local, Spark, soak",
            "test_two_drivers.test_a_task_that_is_run_twice_counts_once"),
    Exactly("the disk becomes full at any moment", "fails, then resumes", "SQLite + log", "-", "local",
            "test_histories.test_a_disk_that_is_full_from_some_moment_on"),
    Exactly("an operator that raises", "stops before the epoch (fail)", "all", "-", "local",
            "test_histories.test_an_event_on_which_the_operator_raises_stops_the_job_before_its_epoch"),
    Exactly("an operator that raises", "dropped once (drop), or one dead letter (dead-letter)", "SQLite + log", "-", "local",
            "test_histories.test_an_event_that_is_given_up_is_given_up_once"),
    Exactly("random operators, any point", "the sinks match the state", "SQLite + log", "-", "local",
            "test_histories.test_random_results_agree_wherever_the_job_breaks", "prepared manifests"),
    Exactly("two drivers in any interleaving, with crashes, damage and lost commits",
            "every row once, or one dead letter that can be replayed", "in memory", "-", "local",
            "epoch/test_walks.test_exactly_once_whatever_happens",
            "dead letters published after the checkpoint, quarantined and recognised"),
    Exactly("drivers that read by plan and by report in turns, with crashes and damage",
            "every row once, or one dead letter that can be replayed", "in memory", "-", "local",
            "epoch/test_walks.test_exactly_once_when_slices_end_by_report"),
    Exactly("a dead letter replayed at any moment; its checkpoint lost afterwards", "one dead letter for each failed event",
            "in memory", "-", "local", "epoch/test_walks.test_exactly_once_whatever_happens",
            "dead letters published after the checkpoint, quarantined and recognised"),
    Exactly("rows rejected, and accepted before their checkpoint completes", "the row, and no dead letter", "SQLite + log", "-",
            "local", "epoch/test_rejected_rows.test_a_record_of_refused_rows_that_the_table_takes_later_does_not_count",
            "a record of each commit"),
    Exactly("a manifest names a path outside the job's folder", "the manifest is not used; nothing outside is read or written",
            "SQLite", "-", "local", "epoch/test_hostile_names.test_a_manifest_that_names_a_path_outside_is_refused",
            "names resolved inside the job's folder"),
    Exactly("a checkpoint completed after another driver has taken over the job", "nothing of it is published", "none", "-",
            "local", "epoch/test_late_completion.test_an_event_that_failed_has_one_letter_whoever_completes_its_checkpoint",
            "the fence checked after a checkpoint is completed"),
    Exactly("a start that sets letters aside after another driver has taken over the job",
            "the letters of the new driver stay", "none", "-", "local",
            "epoch/test_late_completion.test_a_start_that_has_lost_its_job_sets_no_letters_of_the_new_driver_aside",
            "letters listed before the fence is checked"),
    Exactly("refused rows recorded, and the prepared manifest lost before or after the commit",
            "one dead letter for each refused row", "SQLite", "-", "local",
            "epoch/test_rejected_rows.test_refused_rows_are_dead_letters_once_also_if_the_manifest_is_lost",
            "refused rows published by the position of the sink"),
    Exactly("any text in a file of the job's folder replaced by a path that leads outside",
            "refused, or not used as a path; nothing outside is read or written", "SQLite", "-", "local",
            "epoch/test_hostile_files.test_no_text_in_a_file_leads_outside", "names resolved inside the job's folder"),
    Exactly("a manifest names a file outside the job's folder, and DuckDB reads the views", "the query fails", "-", "-", "local",
            "state/test_sql_views.test_views_do_not_read_what_lies_outside"),
    Exactly("a process killed between writing a file and renaming it", "is removed, unless its writer is alive", "all", "-",
            "local", "world/test_temporary.test_what_a_killed_writer_leaves_is_removed", "the lock on a temporary file"),
    Exactly("temporary files of dead processes, in any folder of the job", "are removed", "all", "-", "local",
            "world/test_temporary.test_a_start_removes_them_in_every_folder_of_the_job"),
    Exactly("the power fails at any step of a savepoint", "it is refused as half-made, or complete; the job goes on", "in memory",
            "-", "local", "epoch/savepoints/test_crashes.test_a_power_cut_while_a_savepoint_is_made"),
    Exactly("a driver, or the command, killed with -9 during a savepoint", "it is refused as half-made; the job goes on", "SQLite",
            "-", "local", "cli/test_savepoint_kills.test_a_kill_while_a_savepoint_is_made"),
    Exactly("the power fails at any step of a start from a savepoint, which rewinds the sinks",
            "the next start goes on where the job was, or from the savepoint, all sinks alike; it can be repeated",
            "in memory", "-", "local", "epoch/savepoints/test_crashes.test_a_power_cut_while_an_upgrade_is_rolled_back"),
    Exactly("the power fails at any step of a fork, or of a move to another root", "the same command completes it", "in memory",
            "-", "local", "epoch/savepoints/test_crashes.test_a_power_cut_while_a_job_is_forked",
            "`job.json` names the origin before there is state"),
    Exactly("a fork killed with -9", "the same command completes it", "SQLite", "-", "local",
            "cli/test_savepoint_kills.test_a_kill_while_a_job_is_forked"),
]  # fmt: skip
AT_ONCE = [
    AtOnce("fallback by 1 checkpoint, or to the oldest", "no outputs; the state lacks the later input",
           "nothing; the later input is read again", "SQLite + log", "local",
           "test_at_once.test_without_the_newest_manifests_a_job_falls_back"),
    AtOnce("all manifests damaged", Outcome.REFUSES_NONE.value, Outcome.REFUSES_NONE.value, "SQLite + log", "local",
           "test_at_once.test_without_the_newest_manifests_a_job_falls_back"),
    AtOnce("the plan of an open epoch damaged", "refuses: SW-CHECKPOINT-DAMAGED", "", "SQLite", "local",
           "test_at_once.test_without_the_plan_of_an_open_epoch_at_most_once_refuses"),
    AtOnce("a sink behind its manifest", "not detected: without a ledger", "not detected", "", "", ""),
    AtOnce("a task run twice", "nothing: the second attempt finds the claim", "nothing; the epoch is repeated",
           "SQLite; SQLite + log", "local", "test_at_once.test_every_task_is_run_twice", "claims"),
    AtOnce("a task lost at any point, and run again", "what it had claimed; counted", "nothing; the epoch may be repeated",
           "SQLite + log", "local, Spark, soak", "test_at_once.test_a_task_is_lost_and_run_again", "claims"),
    AtOnce(_STILL, "at most the open epoch", "nothing; the open epoch may be repeated", "SQLite", "local",
           "test_at_once.test_a_driver_that_stands_still_anywhere_and_wakes_up_breaks_no_promise",
           "a check of the fence after a plan"),
    AtOnce("results of windows, joins and timers, at any point", "at most the open epoch, and what was due in it, counted",
           "nothing; what the open epoch wrote may be repeated", "SQLite", "local",
           "test_timed_at_once.test_a_job_that_breaks_keeps_its_promise", "a record of what was due by time"),
    AtOnce("server killed in mid write", "the rows, counted", "nothing; the rows may be repeated",
           "PostgreSQL, append and upsert; Redis", "local, soak",
           "test_servers.test_a_server_is_killed_in_the_middle_of_a_write_at_once"),
    AtOnce("Kafka on both sides, any point: rows written at once", "at most the open epoch, counted",
           "nothing; the open epoch may be repeated", "Kafka", "local",
           "test_kafka_cells.test_a_job_that_writes_at_once_keeps_its_promise"),
    AtOnce("an operator that raises", "the event, counted; with fail the open epoch", "the event, if on_error is not fail",
           "SQLite", "local", "test_at_once.test_an_event_that_nobody_can_do"),
    AtOnce("an operator that raises sometimes", "the event, counted", "under acknowledging nothing: it is replayed",
           "SQLite + log", "local", "test_at_once.test_an_event_that_fails_twice_comes_again", "the list of failed events"),
    AtOnce("a source that cannot be read again, any point", "at most what was in flight",
           "under acknowledging only events that were not in the inbox yet", "SQLite + log", "local",
           "test_polled.test_what_was_taken_from_a_queue_waits_in_the_inbox", "the inbox for events that cannot be read again"),
    AtOnce('a source with start="latest"', "also events that arrived while the job was down; counted", "", "SQLite", "local",
           "test_at_once.test_a_source_that_starts_at_the_latest_counts_what_it_skips"),
    AtOnce("the disk becomes full at any moment", "at most the open epoch, or counted",
           "nothing; the open epoch may be repeated", "SQLite + log", "local",
           "test_at_once.test_a_disk_that_is_full_from_some_moment_on"),
    AtOnce("two drivers, and a source that cannot be read again", "",
           "under acknowledging no event that was in the inbox", "in memory", "local",
           "epoch/test_walks.test_exactly_once_whatever_happens",
           "inbox files removed late, copied, and never those of a higher fence"),
    AtOnce("a start from a savepoint of a job that broke off in an epoch", "what was in flight",
           "nothing; what was in flight may be repeated", "SQLite", "local",
           "epoch/savepoints/test_at_once.test_a_start_from_a_savepoint_of_a_job_that_broke_off",
           "how far input may have been processed"),
]  # fmt: skip
REFUSED = [
    Refusal("more instances of a step that is not keyed, without a grouping", "the order of events per key would be lost",
            "job/test_parallelism.test_more_instances_of_a_step_that_is_not_keyed_need_a_grouping"),
    Refusal("exactly-once with a function as sink", "it keeps no ledger", "test_refused.test_every_sink_under_every_promise"),
    Refusal("exactly-once, or at-least-once by checkpoint, with a source that cannot replay", "its input cannot be read again",
            "test_refused.test_a_source_that_cannot_give_the_same_events_again"),
    Refusal("acknowledging with `apply_batch`", "a batch does not show which event an output is derived from",
            "test_refused.test_a_batch_of_which_nobody_knows_which_event_became_which"),
    Refusal("`read-uncommitted` with the log, Parquet, Redis or a function", "they have no previews",
            "test_refused.test_every_sink_under_every_promise"),
    Refusal("`read-uncommitted` without exactly-once", "all rows are written immediately",
            "test_refused.test_every_sink_under_every_promise"),
]  # fmt: skip
_EO, _MOST, _LEAST = "exactly-once", "at-most-once", "at-least-once"
CONTROLS = [
    Control(_EO, "`job.json` names the origin before there is state",
            "epoch/savepoints/test_crashes.test_control_without_the_origin_in_its_folder_an_interrupted_fork_would_begin_empty"),
    Control("At-most-once: nothing is written twice", "how far input may have been processed",
            "epoch/savepoints/test_at_once.test_control_without_how_far_it_may_have_read_at_most_once_writes_twice"),
    Control("A lost target is not recreated", "the check of the ledger row before a start",
            "connectors/test_lost.test_without_the_rule_rows_come_twice"),
    Control("Readers of Parquet see all of a commit or nothing", "the exchange of two folders in one step",
            "connectors/test_parquet_merging.test_without_the_exchange_they_see_rows_missing"),
    Control(_EO, "the ledger", "test_controls.test_without_the_ledger_rows_come_twice"),
    Control(_EO, "the ledger, at a takeover by a standby", "test_standby_processes.test_without_the_ledger_the_same_check_fails"),
    Control(_EO, "a standby claims only the fence after the one it watched",
            "run/test_standby.test_without_the_rule_the_second_takes_the_job_from_the_first"),
    Control(_EO, "the ledger record, in Kafka", "test_kafka_cells.test_without_the_ledger_record_rows_come_twice"),
    Control(_EO, "one transactional id of all drivers, in Kafka",
            "connectors/test_kafka_sink.test_without_one_transactional_id_a_driver_that_was_taken_over_writes"),
    Control(_EO, "one ledger for all fences", "test_controls.test_with_a_ledger_by_fence_rows_come_twice"),
    Control(_EO, "rows and ledger in one transaction",
            "test_controls.test_with_rows_and_ledger_in_two_transactions_rows_come_twice"),
    Control(_EO, "the fence", "test_controls.test_without_fences_a_driver_that_wakes_up_does_harm"),
    Control(_EO, "outputs that a sink lacks are committed again",
            "test_controls.test_a_sink_behind_that_is_not_offered_what_it_lacks_has_gaps"),
    Control(_EO, "plans that do not span the position of a sink",
            "test_controls.test_with_plans_that_reach_across_a_sink_the_job_is_stuck"),
    Control(_EO, "prepared manifests",
            "test_controls.test_random_results_diverge_where_a_prepared_manifest_is_ignored"),
    Control(_EO, "removal of previews", "test_isolation.test_without_the_removal_previews_are_left"),
    Control(_EO, "staging of rows",
            "test_isolation.test_with_rows_that_are_written_at_once_readers_see_what_is_not_committed"),
    Control(_EO, "dead letters published after the checkpoint, quarantined and recognised",
            "epoch/test_walks.test_without_a_rule_for_effects"),
    Control("acknowledging", "inbox files removed late, copied, and never those of a higher fence",
            "epoch/test_walks.test_without_a_rule_for_effects"),
    Control(_EO, "the fence checked after a checkpoint is completed",
            "epoch/test_late_completion.test_without_the_check_after_completion_the_event_counts_twice"),
    Control(_EO, "letters listed before the fence is checked",
            "epoch/test_late_completion.test_if_letters_are_listed_after_the_check_those_of_the_new_driver_are_lost"),
    Control(_EO, "refused rows published by the position of the sink",
            "epoch/test_rejected_rows.test_if_the_position_of_the_table_does_not_decide_the_checker_notices"),
    Control("Nothing outside the job's folder is read or written", "names resolved inside the job's folder",
            "epoch/test_hostile_files.test_without_the_guard_the_victim_is_opened_or_removed"),
    Control("Clean-up removes no file that a live process writes", "the lock on a temporary file",
            "world/test_temporary.test_without_the_lock_a_live_writer_fails"),
    Control(_EO, "a record of each commit", "epoch/test_rejected_rows.test_without_a_record_of_each_offer_the_checker_notices"),
    Control(_MOST, "the plan before compute", "test_at_once_controls.test_with_the_plan_after_compute_rows_come_twice"),
    Control(_MOST, "the planned offset, not the stored one",
            "test_at_once_controls.test_with_the_stored_offset_instead_of_the_planned_one_rows_come_twice"),
    Control(_MOST, "claims", "test_at_once_controls.test_without_claims_a_task_that_is_run_again_writes_again"),
    Control(_MOST, "a record of what was due by time",
            "test_timed_at_once.test_without_the_record_of_what_was_due_results_come_twice"),
    Control(f"{_MOST}, {_LEAST}", "a check of the fence after a plan",
            "test_at_once_controls.test_without_a_look_at_the_fence_behind_a_plan_a_driver_that_wakes_up_writes_again"),
    Control(_LEAST, "outputs before offsets",
            "test_at_once_controls.test_with_offsets_that_are_stored_before_the_outputs_rows_are_missing"),
    Control("acknowledging", "the inbox for events that cannot be read again",
            "test_polled.test_without_the_inbox_what_was_taken_is_lost"),
    Control("acknowledging", "the list of failed events",
            "test_at_once_controls.test_without_the_events_that_failed_some_are_missing"),
    Control("acknowledging", "restoring the waiting events after a restart",
            "test_at_once_controls.test_without_the_stored_ones_a_restart_forgets_what_failed"),
]  # fmt: skip
