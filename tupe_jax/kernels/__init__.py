"""Fused attention with a positional bias that all sequences of a batch share.

reference.py           the definition, in plain jnp
dropout.py             which weights are dropped: a function of (seed, sequence, head, i, j)
window.py              which blocks of scores an attention window touches
block_sizes.py         for TPUs: how a batch is split into tiles that fit a TPU core's memory
common.py              what the Pallas kernels share
single_block.py        the scores of a sequence in one block: forward and backward kernel
multi_block.py         the scores in many blocks, with online softmax, for long sequences
multi_block_common.py  what its forward and backward kernel share
factored.py            a bias in factors of size S, for long sequences
banded.py              in plain jnp: attention in a window by blocks, where no kernel runs
gpu.py                 for GPUs: the blocks that each program reads and writes, and the calls
gpu_kernels.py         its forward kernel and three backward kernels
cudnn.py               NVIDIA's kernel, on request
sharded.py             any of them on a mesh

`tupe_jax.model.attention_backend` chooses among them.
"""
