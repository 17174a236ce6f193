"""`batch` keeps the contract of the component model: the tests of the other hosts, as far as they do not depend on checkpoints."""

from __future__ import annotations

from typing import Any

import pytest

from engine import test_exchange
from hosts import test_component_model, test_every_host, test_joins, test_windows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CONTRACT = (
    # what does not depend on how often there is a checkpoint
    test_component_model.test_instance_state_comes_back,
    test_component_model.test_channels_split_a_stream,
    test_component_model.test_functions_as_steps,
    test_component_model.test_whole_columns_at_a_time,
    test_component_model.test_timers_are_part_of_the_state,
    test_component_model.test_processing_time_timers_fire_without_input,
    test_component_model.test_a_forgotten_key_begins_anew_and_stays_forgotten,
    test_component_model.test_apply_is_atomic_where_the_job_goes_on_after_an_error,
    test_component_model.test_otherwise_it_fails_the_job,
    test_component_model.test_groupings_choose_the_instances,
    test_component_model.test_a_keyed_operator_in_several_instances_behind_any_source,
    test_every_host.test_operators_in_a_row_and_a_fork,
    test_every_host.test_records_are_checked_before_they_are_stored,
    test_every_host.test_the_wrong_event_is_not_let_out,
    test_every_host.test_a_set_up_that_fails_is_named,
    test_exchange.test_two_jobs_beside_each_other_in_one,
    test_exchange.test_lists_in_events_are_not_shared,
    test_windows.test_windows_do_not_depend_on_the_host,
    test_joins.test_joins_do_not_depend_on_the_host,
    test_joins.test_joins_behind_an_exchange,
)
globals().update({test.__name__: test for test in CONTRACT})  # pytest takes them for this file's own, with this `mode`:


@pytest.fixture
def mode(spark: Any) -> str:
    return "batch"
