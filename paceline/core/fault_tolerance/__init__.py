"""What is decided when processes die: who takes part, copies of slices, which servers go back to what.

Read `membership.py` first. All of it is without clock and socket: both drivers call it. Of `core/` it may import
`validation/` and the files beside the folders.
"""
