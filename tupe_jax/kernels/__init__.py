"""Fused attention with a positional bias that all rows of a batch share.

reference.py        the definition, in plain jnp
dropout.py          which weights are dropped: a function of (seed, row, head, i, j)
tiles.py            how a batch is cut into pieces that fit a TPU core's memory
fused.py            Pallas kernel, forward, and the function to call; fused_backward.py
sharded.py          the same on a mesh
traffic.py          bytes to and from HBM, counted from the tiles
"""
