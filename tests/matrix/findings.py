"""Rows of docs/faults.md about what flows, what is read and written, and what stops a job, whatever the semantics; see `rows`."""

from __future__ import annotations

from typing import NamedTuple

from matrix.rows import Control


class Finding(NamedTuple):
    name: str
    does: str
    where: str
    held: str
    control: str = ""


_RANGE, _BATCHES = "the range check of values", "all batches of a table, not only the first"
_INPUT, _ROUTE = "the check of the input before each plan", "routing by the position in the source"
_CODES, _RETRY = "the codes of PostgreSQL for rejected rows", "the retry in place"
FINDINGS = [
    # what flows
    Finding("a column of more than 2 GiB (the limit is lowered)", "every row is in every sink", "local",
            "engine/test_large_batches.test_every_sink_has_every_row", _BATCHES),
    Finding("state of more than 2 GiB (the limit is lowered)", "the same as a dict, also after restarts", "local",
            "engine/test_large_batches.test_state_beyond_a_batch_is_the_same", "all keys of a merge"),
    Finding("files of a state of more than 2 GiB", "are read back and compacted", "local",
            "engine/test_large_batches.test_state_in_files_can_be_read_back_and_compacted"),
    Finding("the extremes of every type, emitted, as key and as state", "kept, or SW-TYPE-VALUE for that event alone", "local",
            "test_values.test_what_an_operator_emits", _RANGE),
    Finding("the extremes of every type, to PostgreSQL and Redis", "kept, or a dead letter", "local",
            "connectors/test_server_values.test_servers"),
    Finding("composite keys of many values", "different keys are kept separate", "local",
            "test_values.test_composite_keys_stay_apart"),
    Finding("an exception without a code in the engine", "SW-ENGINE-FAILED, with its place", "local",
            "test_values.test_what_the_engine_raises_gets_a_code"),
    Finding("`shuffle()` with instance state, and a fall back", "events go to the same instances again", "local",
            "test_shuffled.test_after_a_fall_back_events_go_to_the_same_instances", _ROUTE),
    Finding("any graph, any parallelism: order per key", "holds as documented", "local, Spark",
            "flow/test_order.test_order_holds_in_any_graph", "events stay in their instance unless a key routes them"),
    Finding("a user-written source, in a job with parallelism", "it has one instance: every event once", "local, Spark",
            "job/test_parallelism.test_a_source_that_people_wrote_is_one_instance"),
    # inputs
    Finding("an input replaced between two runs", "refused: SW-SOURCE-CHANGED", "local",
            "epoch/test_identities.test_between_two_runs", _INPUT),
    Finding("an input replaced while the job runs", "refused: SW-SOURCE-CHANGED; nothing of it is committed", "local",
            "epoch/test_identities.test_while_the_job_runs"),
    Finding("a crash after the first checkpoint, then a replaced input", "refused: SW-SOURCE-CHANGED", "local",
            "epoch/test_identities.test_a_crash_right_after_the_first_checkpoint"),
    Finding("a source with state that advances and emits nothing", "advances", "local, Spark",
            "hosts/test_polled.test_a_source_that_advances_without_giving_anything_advances"),
    Finding("a polled source that always has events, with --until-caught-up", "ends after one epoch", "local, Spark",
            "hosts/test_polled.test_a_source_that_always_has_something_is_caught_up_with_after_one_epoch"),
    Finding("stray files in any folder", "are ignored", "local", "test_stray_files.test_every_folder"),
    Finding("a long last line without an end", "each byte is read a few times", "local",
            "test_stray_files.test_a_line_that_does_not_end_is_looked_at_once"),
    Finding("deeply nested lines", "a bad event; on_error applies", "local", "test_stray_files.test_deeply_nested_lines"),
    Finding("a CSV field above 128 KiB", "is read", "local", "test_stray_files.test_a_long_csv_field"),
    Finding("a crash at any step of the first append with a new field", "acknowledged events are kept", "local",
            "log/test_schemas.test_a_crash_at_any_step_of_the_first_append_with_a_new_field"),
    # targets
    Finding("a missing ledger row, with existing rows", "refused: SW-SINK-LOST", "local",
            "connectors/test_lost.test_a_lost_ledger_row_is_refused", "the check of the ledger row before a start"),
    Finding("a table with another unique index", "no row of another key is removed", "local",
            "connectors/test_sql_targets.test_a_row_never_removes_that_of_another_key", "an upsert on the key"),
    Finding("a user's table with the name of a preview", "is not changed", "local",
            "connectors/test_sql_targets.test_a_table_or_view_of_a_preview_s_name_is_left_alone",
            "the record of the sink's own previews"),
    Finding("keys that are equal in a coarser column", "a dead letter, if on_error allows it", "local",
            "connectors/test_poison.test_keys_that_are_the_same_in_a_coarser_column"),
    Finding("many large rows for Redis", "are written in requests of bounded size", "local",
            "connectors/test_poison.test_chunks_are_cut_by_bytes_as_well", "requests to Redis that are bounded in bytes"),
    Finding("a job started from another folder", "finds its files beside the job file", "local",
            "job/test_paths.test_a_job_started_from_elsewhere_uses_the_files_beside_it"),
    Finding("DuckDB reads the state, epochs were abandoned", "the state of the newest checkpoint", "local",
            "state/test_sql_views.test_what_the_views_say_is_the_state", "views over the files of the newest manifest"),
    # stuck and stopped
    Finding("every epoch exceeds checkpoint_timeout", "a stop ends the run", "local",
            "run/test_stopping.test_a_job_all_of_whose_epochs_take_too_long_can_be_stopped"),
    Finding("more abandoned epochs in a row than the stack is deep", "the stack does not grow", "local",
            "run/test_stopping.test_abandoned_epochs_do_not_pile_up_on_the_stack"),
    Finding("SIGTERM to all processes of a job on Spark", "a clean stop", "Spark",
            "hosts/test_signals.test_a_signal_to_all_processes_of_a_job_on_spark_is_a_clean_stop"),
    Finding("SIGTERM while Spark starts", "a clean end; no process is left", "Spark",
            "hosts/test_signals.test_a_signal_while_spark_starts_ends_the_run_and_leaves_no_process"),
    Finding("SIGTERM during recovery", "the run ends when recovery is finished", "local",
            "run/test_stopping.test_a_signal_during_recovery_ends_the_run_when_recovery_is_finished"),
    Finding("a Spark master that does not answer", "SW-SPARK-UNREACHABLE within seconds", "Spark",
            "hosts/test_signals.test_a_master_that_does_not_answer_is_told_at_once"),
    Finding("a look-up that is down for 20 s, with Retry", "costs only time", "local",
            "delivery/test_retry.test_an_outage_of_20_seconds_costs_time_and_nothing_else", _RETRY),
    Finding("any event fails any number of times, with Retry and crashes", "the results of a run without failures", "local",
            "delivery/test_retry.test_results_are_those_of_a_run_in_which_nothing_failed",
            "event time that waits for a retried event"),
    Finding("a retry longer than checkpoint_timeout", "the timeout is suspended", "local",
            "delivery/test_retry.test_the_checkpoint_timeout_stands_still", "the marks of retries that the driver watches"),
    Finding("a stop during a retry", "answered within 5 s; the epoch is cancelled", "local",
            "observe/test_retrying.test_a_stop_is_answered_soon_and_cancels_the_epoch", "the check for a stop during an epoch"),
    Finding("the clock set by an hour while a failed event waits", "it is replayed in time", "local",
            "delivery/test_acknowledging.test_a_clock_that_is_set_holds_no_event_back"),
    Finding("removed keys", "take no memory", "local",
            "state/test_recent.test_keys_that_were_forgotten_are_not_remembered", "removal of keys with their records"),
    Finding("a fall back past --drop-state", "the component stays dropped", "local",
            "cli/test_drop_state.test_a_fall_back_past_the_drop"),
    # security
    Finding("terminal escapes in the input", "are escaped in all output", "local",
            "cli/test_terminal.test_hostile_input_through_every_command", "escapes in output"),
    Finding("a terminal without UTF-8", "output works", "local", "test_stray_files.test_a_terminal_without_utf8"),
    Finding("a password in an address", "is in none of the files of Spark or of the job", "Spark",
            "hosts/test_secrets.test_workers_take_a_password_from_the_owners_file", "addresses that are sent without secrets"),
    Finding("a metrics request without the token", "401 on every route", "local",
            "observe/test_metrics.test_nothing_else_is_answered"),
]  # fmt: skip
FINDING_CONTROLS = [
    Control("Rows in Parquet after a power failure", "files that are synced before they are renamed",
            "connectors/test_parquet_sink.test_without_syncing_what_is_renamed_a_power_cut_does_harm"),
    Control("Every row, at any size", _BATCHES, "engine/test_large_batches.test_without_the_rest_rows_are_missing"),
    Control("State, at any size", "all keys of a merge",
            "engine/test_large_batches.test_a_merge_of_some_of_the_keys_is_found_out"),
    Control("Values", _RANGE, "test_values.test_without_the_range_a_time_is_staged_that_no_sink_can_read"),
    Control("Instance state", _ROUTE, "test_shuffled.test_routing_by_the_number_of_the_epoch_is_caught"),
    Control("Order", "events stay in their instance unless a key routes them",
            "flow/test_order.test_events_that_are_spread_without_a_grouping_would_be_noticed"),
    Control("Inputs", _INPUT, "epoch/test_identities.test_without_the_check_another_file_is_read_on"),
    Control("Targets", "an upsert on the key", "connectors/test_sql_targets.test_with_insert_or_replace_it_would"),
    Control("Targets", "the record of the sink's own previews",
            "connectors/test_sql_targets.test_without_the_record_a_person_s_table_is_emptied"),
    Control("Previews", "the mark that the view of previews uses",
            "connectors/test_sql_targets.test_a_view_that_does_not_look_at_the_mark_shows_late_ones"),
    Control("Dead letters of rows", _CODES, "connectors/test_poison.test_without_the_codes_the_job_stops"),
    Control("Targets", "requests to Redis that are bounded in bytes",
            "connectors/test_poison.test_chunks_that_count_keys_alone_break_the_connection"),
    Control("Views", "views over the files of the newest manifest", "state/test_sql_views.test_the_query_of_old_is_found_out"),
    Control("Retry", _RETRY, "delivery/test_retry.test_without_retry_the_same_outage_ends_the_job"),
    Control("Retry", "event time that waits for a retried event",
            "delivery/test_retry.test_if_nothing_were_deferred_the_results_would_differ"),
    Control("Retry", "the marks of retries that the driver watches",
            "delivery/test_retry.test_if_it_did_not_stand_still_the_epoch_would_be_abandoned"),
    Control("Retry", "the check for a stop during an epoch",
            "observe/test_retrying.test_if_the_driver_did_not_look_the_stop_would_wait"),
    Control("Memory", "removal of keys with their records",
            "state/test_recent.test_where_they_are_remembered_they_are_many"),
    Control("Terminals", "escapes in output", "cli/test_terminal.test_without_escaping_the_check_fails"),
    Control("Secrets", "addresses that are sent without secrets",
            "hosts/test_secrets.test_workers_take_a_password_from_the_owners_file"),
]  # fmt: skip
