"""What each process of a run does: the live driver put together with the engine.

recipe     what all workers have to agree on       pace        a worker's part, seen from a training loop
seat       where a process stands in its run       worker, server, evaluator   the mains of the processes
conductor  brings a run up, watches and ends it    crew        how it starts and ends the others
"""
