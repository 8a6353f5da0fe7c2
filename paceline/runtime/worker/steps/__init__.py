"""What belongs to one step of a training loop: local work, timing, overlap, checks of the loop.

Read `local_work.py` first. Of `runtime/` it may import `spec/`, `worker/schedules/` and `worker/sharing/`.
"""
