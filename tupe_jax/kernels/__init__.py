"""Fused attention with a positional bias that all rows of a batch share.

reference.py        the definition, in plain jnp
dropout.py          which weights are dropped: a function of (seed, row, head, i, j)
tiles.py            how a batch is cut into pieces that fit a TPU core's memory
fused.py            whole rows of scores: forward kernel, and the function to call
fused_backward.py   its gradients
factored.py         a bias in factors of size S, for long rows; diagonals.py makes tiles of it
long.py             blocks of scores, online softmax; long_backward.py
program.py          what the kernels share; long_program.py: those of long rows
cudnn.py            NVIDIA's kernel
sharded.py          any of them on a mesh
choice.py           which one runs, and why
traffic.py          bytes to and from HBM, counted from the tiles
"""
