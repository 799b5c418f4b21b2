"""Measurements on this machine: what `tupe bench` runs."""
