"""Links that lose, repeat and delay, and streams over them: a model of TCP, and no protocol of the project.

Read `reliable_delivery.py` first, then `lossy_links.py`. Of `sim/` it may import `kernel/`.
"""
