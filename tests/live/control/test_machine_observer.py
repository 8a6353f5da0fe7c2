from __future__ import annotations

from paceline.live.control.machine_observer import NoMachineObserver


def test_nobody_stands_around_the_machines_of_a_run_that_is_not_recorded() -> None:
    machine, observer = object(), NoMachineObserver()
    assert observer.observe("orders", machine) is machine
    observer.close()
