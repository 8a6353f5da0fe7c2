"""Most schemes share this parameter server: it has gates on clocks, rounds, robust means and checks of gradients.

Read `gated_server.py` first, then its worker, `gated_worker.py`. Of `core/` it may import `samples/`, `validation/`
and the files beside the folders.
"""
