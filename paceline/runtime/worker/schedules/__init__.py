"""Schedulers of the user's own: how many steps they make where several workers share those of the plain loop.

Read `loop_schedules.py` first. Of `runtime/` it may import nothing.
"""
