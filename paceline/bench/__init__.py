"""What this machine reaches, against what it allows: the measurements behind `paceline bench`.

Read `exchange.py` first; `hardware_limits.py` measures what memory and a plain socket do. Whatever is compared takes
turns, round by round, in one run: a machine that has other things to do disturbs both sides alike. May import `launch/`
and everything below it.
"""
