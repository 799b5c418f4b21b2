"""Faults in real runs of `tupe pretrain`, as a command: `python -m tests.faults`."""
