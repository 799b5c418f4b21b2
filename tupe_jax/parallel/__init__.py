"""Many devices and many processes.

The mesh of devices, and which axis of an array goes along which axis of it; what a target's chips
can do; and the processes of a run: how they meet, what they tell each other, how they end together.
"""
