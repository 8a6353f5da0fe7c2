"""All planted bugs, and a seed of `paceline fuzz` that catches each; `benchmarks/mutants.py` finds the first ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim import mutants, slips

Mutant = Callable[[pytest.MonkeyPatch], None]

PLANTED: list[tuple[Mutant, int]] = [
    (mutants.no_dedup, 0),
    (mutants.gaps_are_taken, 2),
    (mutants.dedup_is_forgotten_in_a_crash, 3),
    (mutants.no_fence, 19),
    (mutants.a_retry_has_a_new_number, 0),
    (mutants.numbers_of_five_bits, 7),
    (mutants.acknowledged_before_it_is_durable, 35),
    (mutants.what_was_said_is_forgotten_in_a_crash, 22),
    (mutants.a_newcomer_enters_before_everybody_knows, 21),
    (mutants.carriers_of_means_are_not_told_who_is_gone, 5),
    (mutants.servers_are_not_told_who_is_gone, 3),
    (mutants.a_round_forgets_the_samples_of_one, 3),
    (mutants.a_mean_counts_a_repeat, 9),
    (mutants.the_bound_on_staleness_is_off_by_one, 46),
    (mutants.answers_go_before_their_state_is_kept, 47),
    (mutants.the_lost_shard_goes_back_alone, 33),
    (mutants.clocks_are_in_no_snapshot, 22),
    (mutants.a_copy_does_not_know_newcomers, 44),
    (slips.a_mean_forgets_the_weight_of_a_member, 4),
    (slips.the_bound_and_its_declaration_are_off_by_one, 46),
    (slips.the_lease_of_a_lost_worker_is_not_returned, 1),
    (slips.what_workers_have_seen_is_not_restored, 44),
    (slips.an_update_is_made_of_one_contribution_too_few, 76),
    (slips.a_share_for_one_who_has_left_is_not_sent_back, 88),
    (slips.dssp_grants_one_iteration_beyond_its_range, 42),
    (slips.a_barrier_waits_for_one_who_has_left, 104),
    (slips.a_phase_waits_for_one_who_has_ended_it, 599),
    (slips.a_round_closes_without_its_last_member, 21),
    (slips.staleness_is_that_of_the_freshest, 3),
    (slips.a_newcomer_starts_where_the_fastest_are, 622),
    (slips.a_repeated_arrival_counts, 445),
    (slips.one_sample_of_the_global_batch_is_not_dealt, 50),
    (slips.a_leaver_keeps_what_it_hands_over, 0),
    (slips.samples_of_an_update_that_was_undone_are_lost, 48),
    (slips.samples_of_an_open_round_are_given_out_again, 117),
    (slips.the_wrong_server_is_asked_for_a_copy, 425),
]
