from pathlib import Path

import numpy as np
import pytest

from paceline.config import build
from paceline.core.adaptive.grouping import parse_groups
from paceline.core.errors import ConfigError
from paceline.core.scheme import make
from paceline.core.trace import Applied, Record
from paceline.sim import LocalSteps, Simulation
from tests.role_driver import server

GOALS = np.random.default_rng(1).normal(size=(6, 5))


def run(
    name: str, parameters: dict, seconds: dict[int, float] | None = None, **more: object
) -> tuple[Simulation, list]:
    records: list[Record] = []
    work = LocalSteps(
        lambda rank, rng: seconds[rank] if seconds else (1 + rank) * rng.uniform(0.5, 1.5), lambda r, w: w - GOALS[r]
    )
    sim = Simulation(make(name, parameters), np.zeros(5), work, workers=6, servers=2, trace=records.append, **more)
    return sim.run(until=120), records


def test_staleness_is_that_of_the_original_trace() -> None:
    gsp = server("gsp", workers=3, groups="0;1;2")
    clock = [0, 0, 0]
    for rank in (0, 0, 1, 0, 0, 2, 1, 0):
        clock[rank] += 1
        assert set(gsp.push(rank, clock[rank])) == {rank}
    assert [update.staleness + 1 for update in gsp.updates()] == [1, 1, 3, 2, 1, 6, 4, 3]
    assert [update.weight for update in gsp.updates()] == [1, 1, 1 / 3, 1 / 2, 1, 1 / 6, 1 / 4, 1 / 3]


def test_a_group_is_answered_when_its_last_member_pushed_and_others_are_not() -> None:
    gsp = server("gsp", workers=4, groups="0,2;1,3")
    assert gsp.push(0, clock=1, g=2.0) == {}
    assert gsp.push(1, clock=1) == {}
    assert set(gsp.push(2, clock=1, g=4.0)) == {0, 2}
    assert gsp.role.w == [-3.0]


def test_one_group_is_bsp() -> None:
    (gsp, gsp_records), (bsp, bsp_records) = run("gsp", {"groups": "0,1,2,3,4,5"}), run("bsp", {})
    assert (gsp.model() == bsp.model()).all()
    assert gsp_records == bsp_records


def test_singleton_groups_are_asp_with_the_same_weighting() -> None:
    gsp, gsp_records = run("gsp", {"groups": "0;1;2;3;4;5"})
    asp, asp_records = run("asp", {"weighting": "inverse"})
    assert (gsp.model() == asp.model()).all()
    assert gsp_records == asp_records


@pytest.mark.parametrize("groups", ["0,1,2;3,4,5", "0,1;2,3;4,5", "0;1;2;3;4;5"])
def test_with_m_equal_groups_in_turn_staleness_settles_at_m(groups: str) -> None:
    _, records = run("gsp", {"groups": groups}, seconds=dict.fromkeys(range(6), 1.0))
    m = len(parse_groups(groups))
    y = [record.staleness + 1 for record in records if isinstance(record, Applied) and record.shard == 0]
    assert y[:m] == list(range(1, m + 1))
    assert set(y[m:]) == {m}
    assert len(y) > 100 * m


def test_auto_groups_are_found_by_measured_speed() -> None:
    gsp = server("gsp", workers=5, place={"seconds_per_step": (1.0, 4.0, 1.1, 4.5, 1.2)})
    assert [sorted(gsp.role.rounds[rank].members) for rank in (0, 1)] == [[0, 2, 4], [1, 3]]


def test_auto_is_one_group_where_nobody_measured() -> None:
    assert server("gsp", workers=3).role.rounds[2].members == {0, 1, 2}


def test_groups_must_name_each_worker_once() -> None:
    make("gsp", {"groups": "0,1;2"}).check(3, 1)
    with pytest.raises(ConfigError, match=r"must name each of the workers 0\.\.3 once"):
        make("gsp", {"groups": "0,1;2"}).check(4, 1)
    with pytest.raises(ConfigError, match="one group only"):
        make("gsp", {"groups": "0,1;1"})


def test_groups_by_label() -> None:
    make("gsp", {"labels": "a,b,a"}).check(3, 1)
    assert server("gsp", workers=3, labels="a,b,a").role.rounds[2].members == {0, 2}
    with pytest.raises(ConfigError, match=r"labels = 'a\*3' must name each of the workers 0\.\.3 once"):
        make("gsp", {"labels": "a*3"}).check(4, 1)
    with pytest.raises(ConfigError, match="leave one out"):
        make("gsp", {"labels": "a*2", "groups": "0;1"}).check(2, 1)


def test_groups_from_a_file_are_kept_with_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "groups"
    path.write_text("10.0.0.7\n10.0.0.5 10.0.0.6\n", encoding="utf-8")
    values = {"run": {"scheme": "gsp"}, "cluster": {"workers": 3}, "gsp": {"groups": f"file:{path}"}}
    scheme = build(values).scheme()
    path.unlink()
    assert make("gsp", scheme.parameters()).written() == ((0,), (1, 2))
    with pytest.raises(ConfigError, match="No such file"):
        build(values)


def test_a_member_that_leaves_ends_its_groups_wait_only() -> None:
    gsp = server("gsp", workers=4, groups="0,1;2,3")
    gsp.push(0, clock=1)
    gsp.push(2, clock=1)
    assert set(gsp.gone(1)) == {0}
    assert set(gsp.push(3, clock=1)) == {2, 3}
