"""What each process of a run has to know."""

from __future__ import annotations

from paceline import config as configuration
from tests.runtime.spec.test_process_spec import specs_of


def test_where_workers_come_late_means_go_through_servers() -> None:
    specs = specs_of(configuration.build({"cluster": {"initial_workers": 2, "allreduce": "auto"}}))
    assert {spec.allreduce for spec in specs.values()} == {"servers"}
