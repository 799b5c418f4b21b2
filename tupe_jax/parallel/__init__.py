"""Devices: the mesh, and which axis of an array goes along which axis of it."""
