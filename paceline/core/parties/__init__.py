"""What a worker or a server does with an order of the coordinator.

Read `orders.py` first. Every part takes an order, or what came of an earlier action, and returns actions in the order
in which they are to be carried out. `paceline.live.control` and the server carry them out in live runs,
`paceline.sim.faults` where runs are simulated. Nothing here has a clock, a thread or a socket. Of `core/` it may import
`coordination/` and the files beside the folders.
"""
