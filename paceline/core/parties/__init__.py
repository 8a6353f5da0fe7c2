"""What a worker or a server does with a message of the coordinator: about others, and about the run itself.

Read `lifecycle.py` first, then `orders.py`. Every part takes a message, or what came of an earlier action, and returns
actions in the order in which they are to be carried out. `paceline.live.control` and the server carry them out in live
runs, `paceline.sim.faults` where runs are simulated. Nothing here has a clock, a thread or a socket. Of `core/` it may
import `coordination/` and the files beside the folders.
"""
