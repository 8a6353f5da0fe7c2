"""All of the live driver exchanges what is here: envelopes, frames of bytes, the messages of the control plane.

Read `transport.py` first, then `frames.py`. Of `live/` it may import the files beside the folders.
"""
