"""All planted bugs, and a seed of `paceline fuzz` that catches each; `benchmarks/mutants.py` finds the first ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim import driver_mutants, liar_mutants, scheme_mutants

Mutant = Callable[[pytest.MonkeyPatch], None]

PLANTED: list[tuple[Mutant, int]] = [
    (driver_mutants.no_dedup, 0),
    (driver_mutants.gaps_are_taken, 0),
    (driver_mutants.dedup_is_forgotten_in_a_crash, 3),
    (driver_mutants.no_fence, 25),
    (driver_mutants.a_retry_has_a_new_number, 0),
    (driver_mutants.numbers_of_five_bits, 7),
    (driver_mutants.acknowledged_before_it_is_durable, 35),
    (driver_mutants.what_was_said_is_forgotten_in_a_crash, 98),
    (driver_mutants.a_newcomer_enters_before_everybody_knows, 1),
    (driver_mutants.carriers_of_means_are_not_told_who_is_gone, 5),
    (driver_mutants.servers_are_not_told_who_is_gone, 3),
    (driver_mutants.a_round_forgets_the_samples_of_one, 3),
    (driver_mutants.a_mean_counts_a_repeat, 32),
    (driver_mutants.the_bound_on_staleness_is_off_by_one, 46),
    (driver_mutants.answers_go_before_their_state_is_kept, 191),
    (driver_mutants.the_lost_shard_goes_back_alone, 33),
    (driver_mutants.clocks_are_in_no_snapshot, 22),
    (driver_mutants.a_copy_does_not_know_newcomers, 44),
    (scheme_mutants.a_mean_forgets_the_weight_of_a_member, 4),
    (scheme_mutants.the_bound_and_its_declaration_are_off_by_one, 46),
    (scheme_mutants.the_lease_of_a_lost_worker_is_not_returned, 1),
    (scheme_mutants.what_workers_have_seen_is_not_restored, 44),
    (scheme_mutants.an_update_is_made_of_one_contribution_too_few, 76),
    (scheme_mutants.a_share_for_one_who_has_left_is_not_sent_back, 88),
    (scheme_mutants.dssp_grants_one_iteration_beyond_its_range, 42),
    (scheme_mutants.a_barrier_waits_for_one_who_has_left, 206),
    (scheme_mutants.a_phase_waits_for_one_who_has_ended_it, 608),
    (scheme_mutants.a_round_closes_without_its_last_member, 21),
    (scheme_mutants.staleness_is_that_of_the_freshest, 3),
    (scheme_mutants.a_newcomer_starts_where_the_fastest_are, 47),
    (scheme_mutants.one_sample_of_the_global_batch_is_not_dealt, 389),
    (scheme_mutants.a_leaver_keeps_what_it_hands_over, 0),
    (scheme_mutants.samples_of_an_update_that_was_undone_are_lost, 47),
    (scheme_mutants.samples_of_an_open_round_are_given_out_again, 274),
    (scheme_mutants.the_wrong_server_is_asked_for_a_copy, 47),
    (liar_mutants.a_number_beyond_its_bound_is_taken, 32),
    (liar_mutants.clocks_are_not_checked, 371),
    (liar_mutants.a_strike_in_two_is_not_counted, 26),
]
