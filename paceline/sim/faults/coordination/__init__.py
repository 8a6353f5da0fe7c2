"""The coordinator of a simulation: `paceline.core.coordinator.machine` decides, and this folder carries it out.

Read `members.py` first, which is for links that lose nothing, then `lossy_members.py`. Of `sim/` it may import
`faults/links/`, `faults/parties/`, `faults/servers/` and `kernel/`.
"""
