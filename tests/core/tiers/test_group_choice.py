import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.errors import ConfigError
from paceline.core.role import RoleContext
from paceline.core.scheme import make
from paceline.core.tiers.group_choice import WithRankGroups

CHOOSE = ("tiers", "halos")


def place(workers: int, **more: tuple[str, ...]) -> RoleContext:
    return RoleContext(me=0, workers=tuple(range(workers)), w=None, update=lambda w, g, samples: w, **more)  # type: ignore[arg-type]


def chosen(name: str, **parameters: str) -> WithRankGroups:
    scheme = make(name, dict(parameters))
    assert isinstance(scheme, WithRankGroups)
    return scheme


@pytest.mark.parametrize("name", CHOOSE)
def test_groups_are_those_that_are_written_or_labelled_or_found(name: str) -> None:
    assert chosen(name, groups="0,3;1,2").rank_groups(place(4)).groups == ((0, 3), (1, 2))
    assert chosen(name, labels="a,b*2,a").rank_groups(place(4)).groups == ((0, 3), (1, 2))
    assert chosen(name).rank_groups(place(4, hosts=("x", "y", "x", "y"))).groups == ((0, 2), (1, 3))


def test_all_roles_of_a_context_share_the_groups() -> None:
    scheme, here = chosen("tiers"), place(4)
    assert scheme.rank_groups(here) is scheme.rank_groups(here)
    assert scheme.rank_groups(place(6)).groups == ((0, 1, 2), (3, 4, 5))


@pytest.mark.parametrize("name", CHOOSE)
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"groups": "0,1;2"}, r"{}.groups = '0,1;2' must name each of the workers 0..3 once"),
        ({"labels": "a,b,a"}, r"{}.labels = 'a,b,a' must name each of the workers 0..3 once"),
        ({"labels": "a,b,a,b", "groups": "0,1;2,3"}, "{0}.groups and {0}.labels both say who is in a group"),
    ],
)
def test_groups_that_do_not_fit_are_refused(name: str, parameters: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words.format(name)):
        chosen(name, **parameters).check(workers=4, servers=1)


def test_a_worker_in_two_groups_is_refused() -> None:
    with pytest.raises(ConfigError, match="a worker may be in one group only"):
        chosen("halos", groups="0,1;1,2")
