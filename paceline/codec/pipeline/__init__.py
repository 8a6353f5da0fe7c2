"""Where codecs meet messages: what is encoded under which scheme, and the residuals that are kept.

Read `stage.py` first; `policy.py` says which codec goes with which scheme. May import `codec/` and `core/`.
"""
