"""What workers and servers of a simulation do with what they are told; `paceline.core.parties` decides it.

Read `party_orders.py` first. Where a live process takes its time, these take a drawn time: `bring_up.py` before it
trains, `run_end.py` when it is over; `sample_leases.py` is what both say about leased samples. Of `sim/` it may import
`checking/oracles/`, `faults/links/` and `kernel/`.
"""
