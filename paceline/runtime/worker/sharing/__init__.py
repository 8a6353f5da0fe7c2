"""What the loop of one worker decides for all: values under names, and a learning rate that follows a measurement.

Read `shared_values.py` first. Of `runtime/` it may import nothing else.
"""
