"""To be run with 8 CPU devices: the kernels on a mesh and alone; prints differences as JSON."""

import json
from functools import partial

import jax

from tests.kernels.cases import (
    SEED,
    is_token,
    largest_difference,
    numbers,
    output_and_gradients,
    qkv,
)
from tests.kernels.test_multi_block import bias_of
from tupe_jax.config.schema import MeshConfig
from tupe_jax.distributed.mesh import make_mesh
from tupe_jax.kernels.banded import banded_attention
from tupe_jax.kernels.gpu import gpu_attention
from tupe_jax.kernels.multi_block import multi_block_attention
from tupe_jax.kernels.sharded import on_mesh
from tupe_jax.kernels.single_block import single_block_attention

MESHES = {
    "slices, data and tensor": MeshConfig(slice=2, data=2, fsdp=1, tensor=2),
    "fsdp, and more of it than rows allow": MeshConfig(slice=1, data=1, fsdp=8, tensor=1),
}
B, S, H, d = 4, 70, 2, 64  # two blocks on a GPU


def main():
    settings = {"scale": d**-0.5, "rate": 0.2}
    kernels = {
        "fused": (partial(single_block_attention, **settings), numbers((H, S, S), 9)),
        "gpu": (partial(gpu_attention, **settings), numbers((H, S, S), 9)),
        "long": (
            partial(multi_block_attention, block=128, window=10, **settings),
            bias_of("tupe_r", S, H, d),
        ),
        "banded": (partial(banded_attention, window=10, **settings), bias_of("t5", S, H, d)),
    }
    seen = {}
    for kernel, (attend, bias) in kernels.items():

        def run(attend=attend, bias=bias):
            return output_and_gradients(
                lambda q, k, v, bias: on_mesh(attend, q, k, v, bias, is_token(B, S), SEED),
                *qkv(B, S, H, d),
                bias,
            )

        alone = run()
        for name, sizes in MESHES.items():
            if kernel == "long" and sizes.tensor == 1:
                continue
            with jax.set_mesh(make_mesh(sizes)):
                sharded = run()
            arrays = zip(jax.tree.leaves(sharded), jax.tree.leaves(alone), strict=True)
            # theta_1's gradient is 0 in both
            seen[f"{kernel}: {name}"] = [largest_difference(*p) for p in arrays if p[1].any()]
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
