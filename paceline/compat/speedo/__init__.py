"""The front door of SpeeDO: its command lines, and the solver and net files of Caffe that they name.

Read `command_line.py` first, then `caffe_net.py`. Of `compat/` it may import nothing else.
"""
