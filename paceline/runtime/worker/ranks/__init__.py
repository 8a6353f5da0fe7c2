"""A worker of several processes: its first rank takes part in the run, and the others follow it.

Read `local_group.py` first, then `meeting.py` (what is agreed at `join`), `first_rank.py` and `other_rank.py`. Of
`runtime/` it may import `spec/`, `worker/`, `worker/loop/`, `worker/schedules/` and `worker/steps/`.
"""
