"""All of the live driver exchanges what is here: envelopes and frames of bytes.

Read `transport.py` first, then `frames.py`. The messages of the control plane are in
`paceline/core/coordination/control_messages.py`. Of `live/` it may import nothing else.
"""
