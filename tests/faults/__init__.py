"""Faults in real runs of `tupe pretrain`: a campaign as a command, and a sample of it as tests."""
