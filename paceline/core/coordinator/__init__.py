"""The coordinator as one machine: it brings a run up, gives each input to the part that it concerns, and ends the run.

Read `machine.py` first. The parts that work while training goes on are in `paceline.core.coordination`. Nothing here
has a clock, a thread or a socket; `paceline.live.coordinator` drives it, and `paceline.sim.faults` does where runs are
simulated. Of `core/` it may import `coordination/`, `fault_tolerance/`, `paramserver/`, `validation/`, and the files
beside the folders.
"""
