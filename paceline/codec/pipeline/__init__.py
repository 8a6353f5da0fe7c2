"""Applies codecs to messages: what is encoded under which scheme, and the residuals that are kept.

Read `stage.py` first; `policy.py` says which codec goes with which scheme. Of `codec/` it may import `algorithms/`,
`kernels/` and the files beside the folders.
"""
