"""Real faults during a real run of processes: drawn from a seed, carried out, and what the run made of them.

plan      which faults, when and to whom; pure
crew      a crew whose parties can be signalled, and whose ways to one another can be cut
relay     those ways
storm     the thread that carries a plan out
verdict   pauses from the trace, the table, and whether the bounds held
"""
