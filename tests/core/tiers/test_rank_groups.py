from paceline.core.tiers.rank_groups import RankGroups, groups_by_place


def test_workers_of_one_site_are_a_group() -> None:
    hosts, sites = ("a", "b", "c", "d"), ("home", "home", "away", "away")
    assert groups_by_place(hosts, sites, 4) == ((0, 1), (2, 3))


def test_at_one_site_workers_of_one_host_are_a_group() -> None:
    assert groups_by_place(("a", "b", "a", "b", "b"), ("x",) * 5, 5) == ((0, 2), (1, 3, 4))


def test_where_neither_tells_there_are_two_halves() -> None:
    assert groups_by_place(("a",) * 5, (), 5) == ((0, 1, 2), (3, 4))
    assert groups_by_place(("a", "b", "c"), (), 3) == ((0, 1), (2,))  # a group a host would be no group
    assert groups_by_place((), (), 1) == ((0,),)


def test_a_worker_has_a_group_and_a_number_in_it() -> None:
    groups = RankGroups(((0, 3), (1, 2)))
    assert groups.group_of == {0: 0, 3: 0, 1: 1, 2: 1}
    assert groups.number_of == {0: 0, 3: 1, 1: 0, 2: 1}
