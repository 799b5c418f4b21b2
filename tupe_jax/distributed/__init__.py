"""Meshes and processes: the runtime of a run on many devices and hosts."""
