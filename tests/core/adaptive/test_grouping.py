import random
import re

import pytest

from paceline.core.adaptive.grouping import (
    check_groups,
    groups_by_speed,
    parse_groups,
    parse_labels,
    ranks_for_names,
    score,
    written,
)


def by_rank(*seconds: float) -> dict[int, float]:
    return dict(enumerate(seconds))


def test_groups_are_written_in_lines_or_with_semicolons() -> None:
    assert parse_groups("0,1;2,3") == ((0, 1), (2, 3))
    assert parse_groups("0 2\n1, 3\n\n") == ((0, 2), (1, 3))
    with pytest.raises(ValueError, match="one group only"):
        parse_groups("0,1;1")


def test_a_file_of_hosts_means_what_it_meant_to_the_original() -> None:
    """MXNet-G sorts all addresses as text; the i-th of n is rank n - 1 - i."""
    assert parse_groups("10.0.0.1 10.0.0.2\n10.0.0.3 10.0.0.3\n") == ((2, 3), (0, 1))
    with pytest.raises(ValueError, match="'b' stands in two: write ranks instead"):
        parse_groups("a b\nb c")


def test_equal_labels_are_a_group() -> None:
    assert parse_labels("a,b,a,b") == ((0, 2), (1, 3))
    assert parse_labels("fast*3, slow*2") == ((0, 1, 2), (3, 4))
    with pytest.raises(ValueError, match="write a label for each worker"):
        parse_labels("a,,b")


def test_workers_of_like_speed_are_a_group() -> None:
    assert groups_by_speed(by_rank(1.0, 4.0, 1.1, 4.5, 1.2), ratio=1.5) == ((0, 2, 4), (1, 3))
    assert groups_by_speed(by_rank(3.0, 1.0), ratio=2.0) == ((1,), (0,))
    assert groups_by_speed({}, ratio=2.0) == ()


def test_speeds_that_differ_by_less_than_the_ratio_are_one_group() -> None:
    assert groups_by_speed(by_rank(1.0, 1.4), ratio=1.5) == ((0, 1),)
    assert groups_by_speed(by_rank(*[2.0] * 7), ratio=1.5) == (tuple(range(7)),)


@pytest.mark.parametrize("kinds", [1, 2, 3, 5])
def test_the_number_of_groups_is_that_of_the_kinds_of_machine(kinds: int) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        seconds = {rank: 2.5 ** (rank % kinds) * rng.lognormvariate(0, 0.08) for rank in range(30)}
        expected = tuple(tuple(range(kind, 30, kinds)) for kind in range(kinds))
        assert groups_by_speed(seconds, ratio=1.5) == expected, f"seed {seed}"


def test_no_grouping_with_means_as_far_apart_is_better_than_the_one_found() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        seconds = {rank: rng.lognormvariate(0, 0.8) for rank in range(9)}
        found = score(groups_by_speed(seconds, 1.5), seconds, 1.5)
        order = sorted(seconds, key=seconds.__getitem__)
        cuts = [(tuple(order[:a]), tuple(order[a:])) for a in range(1, 9)]
        assert found >= max(score(groups, seconds, 1.5) for groups in cuts) - 0.15, f"seed {seed}"


def test_a_grouping_is_scored_by_how_far_the_next_group_is() -> None:
    seconds = by_rank(1.0, 1.0, 4.0, 4.0)
    assert score(((0, 1), (2, 3)), seconds, 1.5) == 1.0
    assert score(((0, 1, 2, 3),), seconds, 1.5) == 0.0
    assert score(((0, 2), (1, 3)), seconds, 1.5) == -1.0


PLACES = {"hosts": ["a", "a", "b", "c"], "labels": ["fast", "fast", "slow", "slow"]}


def test_names_of_hosts_or_labels_stand_for_the_workers_there() -> None:
    assert ranks_for_names("a b;c", PLACES) == "0,1,2;3"
    assert ranks_for_names("a,a\nb,c", PLACES) == "0,1;2,3"  # once for each worker, as MXNet-G's file has it
    assert ranks_for_names("slow;fast", PLACES) == "2,3;0,1"
    for text in ("0,1;2,3", "10.0.0.1 10.0.0.2;10.0.0.3 10.0.0.4"):
        assert ranks_for_names(text, PLACES) == text
    assert written(parse_groups("0,1;2,3")) == "0,1;2,3"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0,1;2,x", "'x' is no rank, and no name that there is; hosts: a, b, c; labels: fast, slow"),
        ("a;b,d", "'d' is no rank, and no name that there is; hosts: a, b, c; labels: fast, slow"),
        ("e;f", "'e' is no rank, and no name that there is"),
        ("a;2,3", "write ranks alone, or names of one kind alone; hosts: a, b, c"),
        ("a;slow", "write ranks alone, or names of one kind alone"),
        ("a,b;b,c", "'b' stands in two groups"),
    ],
)
def test_a_name_that_nobody_has_is_refused_with_those_that_there_are(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        ranks_for_names(text, PLACES)


def test_of_many_names_the_first_are_listed() -> None:
    with pytest.raises(ValueError, match=r"hosts: w0, w1, w2, w3, w4, w5, w6, w7 and 92 more$"):
        ranks_for_names("w0;w100", {"hosts": [f"w{rank}" for rank in range(100)], "labels": [""] * 100})


def test_a_list_of_ranks_with_a_slip_is_no_list_of_hosts() -> None:
    check_groups("0,1;2,x")  # it may be refused with the hosts that there are, which are not known here
    with pytest.raises(ValueError, match=r"'x' is no rank, and 0 is one: write ranks alone, or names alone"):
        parse_groups("0,1;2,x")
    with pytest.raises(ValueError, match="one group only"):
        check_groups("0,1;1")
