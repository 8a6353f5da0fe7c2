"""Which process of a run is started, and when: at the beginning, in the place of a lost one, or as a newcomer.

Read `processes.py` first. Nothing here has a clock, a thread or a process; `paceline.runtime.supervisor` starts and
kills the processes of live runs, and `paceline.sim.faults` those of simulated ones. Of `core/` it may import
`coordination/`.
"""
