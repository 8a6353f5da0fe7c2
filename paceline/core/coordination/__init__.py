"""What the coordinator of a run decides during training: who takes part, which servers go back, who has which samples.

Read `decisions.py` first: every part takes messages, losses and timers, and adds what follows to one value. Nothing
here has a clock, a thread or a socket; `paceline.live.coordinator` drives it, and `paceline.sim.faults` does where
runs are simulated. Of `core/` it may import `fault_tolerance/`, `samples/`, `validation/`, and the files beside the
folders.
"""
