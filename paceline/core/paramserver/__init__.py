"""The parameter server that most schemes share: gates on clocks, rounds, robust means, checks of gradients.

Read `gated_server.py` first, then its worker, `gated_worker.py`. Of `core/` it may import `collective/`, `samples/`,
`validation/` and the files beside the folders.
"""
