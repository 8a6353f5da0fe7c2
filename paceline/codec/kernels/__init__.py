"""These are the loops of the codecs, compiled by numba for a CPU, by Triton for a GPU.

Read `cpu.py` first; `gpu.py` has the same loops. Of `codec/` it may import the files beside the folders.
"""
