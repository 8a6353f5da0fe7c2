"""Shares: whatever the kind, every epoch covers every sample exactly once."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import ConfigError
from paceline.engine.data.partition import apportion
from paceline.engine.data.partition_plan import KINDS, PartitionPlan, Redrawn, make_partition, parse_partition

WEIGHT = st.floats(0, 1e308, allow_subnormal=True)
EPOCH = st.integers(0, 2**32 - 1)
SEED = st.integers(-(2**63), 2**64)


def assert_exact_cover(shares: PartitionPlan, n: int, workers: int, epoch: int) -> None:
    parts = [shares.indices(rank, epoch) for rank in range(workers)]
    assert [len(part) for part in parts] == [shares.size(rank) for rank in range(workers)]
    assert all(part.dtype == np.int64 for part in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))


def sizes(shares: PartitionPlan, workers: int) -> list[int]:
    return [shares.size(rank) for rank in range(workers)]


@st.composite
def cluster(draw: st.DrawFn) -> tuple[int, int]:
    """(samples, workers), with at least one sample a worker."""
    workers = draw(st.integers(1, 40))
    return draw(st.integers(workers, 400)), workers


# ---- exact cover ---------------------------------------------------------------------------------------------


@given(cluster(), SEED, EPOCH)
def test_uniform_shares_cover_exactly_and_differ_by_one_at_most(size: tuple[int, int], seed: int, epoch: int) -> None:
    n, workers = size
    shares = make_partition("uniform", n, workers, seed=seed)
    assert_exact_cover(shares, n, workers, epoch)
    assert max(sizes(shares, workers)) - min(sizes(shares, workers)) <= 1


@given(st.lists(WEIGHT, min_size=1, max_size=30).filter(any), st.integers(0, 300), SEED, EPOCH)
def test_fractions_cover_exactly_for_any_weights(weights: list[float], more: int, seed: int, epoch: int) -> None:
    n = len(weights) + more
    shares = make_partition("fractions:" + ",".join(map(repr, weights)), n, len(weights), seed=seed)
    assert_exact_cover(shares, n, len(weights), epoch)
    for rank, weight in enumerate(weights):
        assert (shares.size(rank) > 0) == (weight > 0)


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=30), st.integers(0, 300), EPOCH)
def test_speed_covers_exactly_for_any_speeds(seconds: list[float], more: int, epoch: int) -> None:
    n = len(seconds) + more
    assert_exact_cover(make_partition("speed", n, len(seconds), None, 0, seconds), n, len(seconds), epoch)


@given(cluster(), st.integers(1, 12), st.sampled_from(["class", "dirichlet"]), st.floats(1e-6, 1e6), SEED, EPOCH)
def test_shares_by_label_cover_exactly_and_leave_nobody_empty(
    size: tuple[int, int], classes: int, kind: str, alpha: float, seed: int, epoch: int
) -> None:
    n, workers = size
    labels = np.random.default_rng(n).integers(0, classes, n)
    text = kind if kind == "class" else f"dirichlet:{alpha!r}"
    shares = make_partition(text, n, workers, labels, seed)
    assert_exact_cover(shares, n, workers, epoch)
    assert min(sizes(shares, workers)) >= 1


@given(st.lists(st.floats(0, 1), max_size=20), st.integers(0, 200), st.randoms(use_true_random=False), EPOCH)
def test_a_sharding_file_covers_exactly_in_any_order_of_lines(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[float], more: int, random: object, epoch: int
) -> None:
    edges = [0.0, *sorted(cuts), 1.0]
    lines = [f"{a:.8f} {b:.8f}" for a, b in itertools.pairwise(edges)]
    random.shuffle(lines)  # type: ignore[attr-defined]
    path = tmp_path_factory.mktemp("shares") / "data_sharding"
    path.write_text("\n".join(lines))
    n = len(lines) + more
    assert_exact_cover(make_partition(f"file:{path}", n, len(lines)), n, len(lines), epoch)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=20), st.integers(1000, 5000))
def test_a_share_is_within_one_sample_of_its_fraction(weights: list[float], n: int) -> None:
    exact = np.array(weights) / sum(weights) * n
    assert np.abs(apportion(np.array(weights), n) - exact).max() <= 1 + 1e-6


# ---- epochs, seeds, machines ---------------------------------------------------------------------------------


def test_iid_shares_are_redrawn_every_epoch_so_that_a_worker_sees_all_data() -> None:
    shares = make_partition("uniform", 100, 4)
    seen = np.unique(np.concatenate([shares.indices(0, epoch) for epoch in range(40)]))
    assert len(seen) == 100


@pytest.mark.parametrize("text", ["class", "dirichlet:0.5"])
def test_shares_by_label_stay_and_only_their_order_changes(text: str) -> None:
    shares = make_partition(text, 100, 4, np.arange(100) % 10)
    first, second = shares.indices(2, 0), shares.indices(2, 1)
    assert not np.array_equal(first, second)
    assert np.array_equal(np.sort(first), np.sort(second))


@pytest.mark.parametrize("text", ["uniform", "class", "dirichlet:0.5"])
def test_seed_and_epoch_decide_everything(text: str) -> None:
    labels = np.arange(60) % 10
    one, same, other = (make_partition(text, 60, 3, labels, seed) for seed in (7, 7, 8))
    assert np.array_equal(one.indices(1, 5), same.indices(1, 5))
    assert not np.array_equal(one.indices(1, 5), one.indices(1, 6))
    assert not np.array_equal(one.indices(1, 5), other.indices(1, 5))


def test_these_numbers_are_the_same_on_every_machine() -> None:
    assert make_partition("uniform", 10, 2, seed=1).indices(0, 3).tolist() == [1, 2, 0, 6, 8]
    labels = np.arange(10) % 3
    assert sorted(make_partition("dirichlet:0.5", 10, 2, labels, seed=1).indices(0, 0).tolist()) == [3, 6, 7, 9]


# ---- the kinds -----------------------------------------------------------------------------------------------


def test_speed_gives_the_fast_worker_more() -> None:
    assert sizes(make_partition("speed", 300, 2, seconds_per_step=(0.1, 0.2)), 2) == [200, 100]


def test_class_gives_each_worker_few_classes() -> None:
    labels = np.arange(100) % 10
    shares = make_partition("class", 100, 5, labels)
    assert [sorted(set(labels[shares.indices(rank, 0)].tolist())) for rank in range(5)] == [
        [0, 1], [2, 3], [4, 5], [6, 7], [8, 9],
    ]  # fmt: skip


def test_a_large_alpha_is_nearly_even_and_a_small_one_is_not() -> None:
    labels = np.arange(10_000) % 10
    even = sizes(make_partition("dirichlet:100000", 10_000, 4, labels), 4)
    assert max(even) - min(even) < 200
    skewed = make_partition("dirichlet:0.01", 10_000, 4, labels)
    assert min(len(set(labels[skewed.indices(rank, 0)].tolist())) for rank in range(4)) < 5


def test_a_sharding_file_gives_line_r_to_rank_r(tmp_path: Path) -> None:
    path = tmp_path / "data_sharding"
    path.write_text("# written by hand\n0.75 1\n\n0 0.5\n0.5 0.75\n")
    shares = make_partition(f"file:{path}", 100, 3)
    assert sizes(shares, 3) == [25, 50, 25]
    assert isinstance(shares, Redrawn)
    assert shares.slices == (slice(75, 100), slice(0, 50), slice(50, 75))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 0.5\n0.6 1\n", "line 2: gap of 0.5 to 0.6 after line 1"),
        ("0.5 1\n0 0.7\n", "line 1: overlap of 0.5 to 0.7 after line 2"),
        ("0.1 0.5\n0.5 1\n", "line 1: gap of 0 to 0.1 after the start"),
        ("0 0.5\n0.5 0.99\n", "gap of 0.99 to 1 after line 2"),
        ("0 1\n0 1\n", "overlap of 0 to 1"),
        ("0 0.5\n0.5\n", "line 2: '0.5' is not"),
        ("0 0.5\n0.5 one\n", "line 2: '0.5 one' is not"),
        ("0 0.5\n1 0.5\n", "line 2: 1 to 0.5 is not a slice"),
        ("0 0.5\nnan 1\n", "line 2: nan to 1 is not a slice"),
        ("0 0.5\n0.5 1.5\n", "line 2: 0.5 to 1.5 is not a slice"),
        ("0 1\n", "has 1 lines for 2 workers"),
        ("\xff", "has 1 lines for 2 workers"),
    ],
)
def test_a_sharding_file_that_does_not_tile_is_refused_by_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "data_sharding"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        make_partition(f"file:{path}", 100, 2)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_sharding_file_that_cannot_be_read_is_a_plain_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        make_partition(f"file:{tmp_path / 'nowhere'}", 100, 2)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot read"):
        make_partition(f"file:{tmp_path / 'binary'}", 100, 2)


# ---- the text form -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("unifrom", "did you mean 'uniform'"),
        ("", "there are: uniform"),
        ("uniform:3", "takes nothing after it"),
        ("class:", "takes nothing after it"),
        ("dirichlet", "write dirichlet:ALPHA"),
        ("dirichlet:", "write dirichlet:ALPHA"),
        ("dirichlet:x", "not a number"),
        ("dirichlet:0", "ALPHA must be"),
        ("dirichlet:nan", "ALPHA must be"),
        ("dirichlet:1,2", "ALPHA must be"),
        ("fractions", "write fractions:A,B"),
        ("fractions:1,,2", "not a number"),
        ("fractions:0,0", "not all zero"),
        ("fractions:1,-1", "zero or positive"),
        ("fractions:inf,1", "zero or positive"),
        ("file", "write file:PATH"),
        ("file:", "write file:PATH"),
    ],
)
def test_a_bad_text_is_refused_with_the_way_out(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_partition(text)
    assert words in str(caught.value)


def test_a_good_text_is_taken_apart_without_reading_any_file() -> None:
    assert parse_partition("file:/no/such:file").path == "/no/such:file"
    assert parse_partition("fractions:0.5,0.25,0.25").weights == (0.5, 0.25, 0.25)
    assert parse_partition("dirichlet:0.3").alpha == 0.3
    assert {parse_partition(kind).kind for kind in ("uniform", "speed", "class")} < set(KINDS)


@pytest.mark.parametrize("text", ["uniform", "class", "fractions:1,1,1"])
def test_fewer_samples_than_workers_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="2 samples among 3 workers"):
        make_partition(text, 2, 3, np.zeros(2, np.int64))


def test_what_a_kind_needs_and_was_not_given_is_named() -> None:
    with pytest.raises(ConfigError, match="needs the labels"):
        make_partition("class", 10, 2)
    with pytest.raises(ConfigError, match="there are 9"):
        make_partition("dirichlet:1", 10, 2, np.zeros(9, np.int64))
    with pytest.raises(ConfigError, match="0 measured seconds per step for 2 workers"):
        make_partition("speed", 10, 2)
    with pytest.raises(ConfigError, match="must be positive"):
        make_partition("speed", 10, 2, seconds_per_step=(0.0, 1.0))
    with pytest.raises(ConfigError, match="3 fractions for 2 workers"):
        make_partition("fractions:1,1,1", 10, 2)


@pytest.mark.parametrize("text", ["uniform", "class"])
@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_that_does_not_exist_has_no_share(text: str, rank: int) -> None:
    shares = make_partition(text, 10, 2, np.zeros(10, np.int64))
    for ask in (lambda: shares.indices(rank, 0), lambda: shares.size(rank)):
        with pytest.raises(IndexError, match="among 2 workers"):
            ask()


# ---- leases --------------------------------------------------------------------------------------------------
def test_leases_are_whole_mini_batches_unless_their_length_is_given() -> None:
    assert parse_partition("queue").lease_size(1600, 2, 10) == 50
    assert parse_partition("queue").lease_size(20, 4, 32) == 32
    assert parse_partition("queue:48").lease_size(1600, 2, 10) == 48


@pytest.mark.parametrize("text", ["queue:0", "queue:1.5", "queue:1,2", "queue:-3"])
def test_a_lease_is_a_whole_number_of_samples(text: str) -> None:
    with pytest.raises(ConfigError, match="N must be a whole number from 1"):
        parse_partition(text)


def test_nobody_has_a_share_of_leased_data() -> None:
    with pytest.raises(ConfigError, match="no worker a share in advance"):
        make_partition("queue", 10, 2)
