"""The loops of the codecs, compiled: by numba on a CPU, by Triton on a GPU.

Read `cpu.py` first; `gpu.py` has the same loops. Of `codec/` it may import the files beside the folders.
"""
