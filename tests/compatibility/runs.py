"""The runs whose results are pinned, as a script: `runs.py write` or `runs.py replay`.

`write` made the fixtures with an earlier commit on PYTHONPATH (README.md has the commands), so this
file uses nothing but `tupe` commands, `tupe_jax.load` and the formats of other libraries. `replay`
repeats the runs with the code of today. Both write `results.json` into the current folder.

It runs in a process of its own, because the bits of a result depend on three things that are fixed
before JAX starts (`environment`). Measured on `tupe_r:tiny`, 12 steps, two cores with AVX-512:

    threads              1, or 2, or 2 threads on 1 core: 84 to 86 of 92 arrays differ
    instruction set      SSE4.2: 84 arrays differ; AVX2: none differs from AVX-512
    optimisations        with those that the tests turn off (tests/conftest.py): 85 arrays differ

No weight differed by more than 1.2e-7. One thread and AVX2 give equal bits on most x86 machines;
`machine` shows whether they do on this one. Large products depend on the processor even then, as
they are cut into blocks that fit its caches: on two x86 servers with equal results of all else, 83
of the 92 arrays of `PINNED` differed. `processor` says on which kind that run was made.
"""

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np

NOT_PINNED = ("tokens_per_second", "goodput", "mfu", "position_bias/")
"""Metrics that depend on the clock, and metrics that came later."""
PINNED = (
    "--config=tupe_r:tiny",
    "--config.train.steps=12",
    "--config.train.log_every=1",
    "--config.checkpoint.every=6",
    "--config.eval.every=6",
)
TASK, TOKENS, LENGTH = "builtin:200", 300, 16
SMALL = (
    *PINNED,
    f"--config.data.task={TASK}",
    f"--config.data.length={LENGTH}",
    f"--config.model.vocab_size={TOKENS}",
    "--config.model.hidden_size=16",
    "--config.model.mlp_size=32",
    "--config.model.dropout=0.1",
    "--config.model.attention_dropout=0.1",
    f"--config.position.max_length={LENGTH}",
    "--config.train.batch_size=16",
    "--config.eval.rows=16",
)
"""A model that is small enough to keep its checkpoint; resuming must reproduce its dropout."""
ON_PREPARED = ("--config.data.prepared=prepared", "--config.data.vocabulary=vocabulary.model")
KILLED_AT = 8
TEXTS = ["the dog saw a cat.", "she left."]
SAMPLE = 16


def environment(folder):
    """The environment of this script; the compiled programs of equal runs are shared."""
    return {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "NPROC": "1",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def tupe(*words):
    from tupe_jax.cli import main

    code = main(list(words))
    if code:
        raise SystemExit(f"tupe {' '.join(words)}: exit code {code}")


def machine():
    """Equal on machines that compute the same bits, as far as a few operations show it."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def probe(x, y):
        z = jnp.tanh(x @ y) + jax.nn.softmax(x @ y.T) + jax.lax.erf(x)
        z = z * jax.lax.rsqrt((z * z).mean(-1, keepdims=True))
        return z, z.sum(), jnp.exp(z).sum(0), jnp.log(1 + z * z).mean(1)

    x, y = jax.random.normal(jax.random.key(0), (2, 256, 256))
    bits = b"".join(np.asarray(array).tobytes() for array in probe(x, y))
    return {"jax": jax.__version__, "probe": hashlib.sha256(bits).hexdigest()}


def processor():
    """The model of this processor and the sizes of its caches."""
    info = Path("/proc/cpuinfo")
    first = info.read_text().split("\n\n")[0].splitlines() if info.exists() else []
    found = {name.strip(): value.strip() for name, _, value in (x.partition(":") for x in first)}
    caches = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    return {
        **{name: found.get(name) for name in ("vendor_id", "cpu family", "model", "stepping")},
        "caches": [size.read_text().strip() for size in caches],
    }


def described(array):
    """Its checksum, and some values to compare where the last bits differ."""
    array = np.asarray(array)
    spread = np.linspace(0, array.size - 1, min(SAMPLE, array.size)).astype(int)
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
        "values": array.ravel()[spread].tolist(),
    }


def arrays_of_checkpoint(folder):
    """All arrays of a checkpoint by path, as Orbax reads them."""
    import jax
    import orbax.checkpoint as ocp

    tree = ocp.PyTreeCheckpointer().restore((folder / "state").absolute())
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def results_of_run(workdir):
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    steps = sorted(int(folder.name) for folder in (workdir / "checkpoints").iterdir())
    arrays = arrays_of_checkpoint(workdir / "checkpoints" / str(steps[-1]))
    return {
        "metrics": [
            {name: value for name, value in line.items() if not name.startswith(NOT_PINNED)}
            for line in lines
        ],
        "arrays": {path: described(array) for path, array in arrays.items()},
    }


def results_of_model(folder):
    """What a loaded model computes: logits, vectors, scores and the bias of its positions."""
    import tupe_jax

    model = tupe_jax.load(folder)
    tokens_BxS = np.arange(5, 5 + 2 * LENGTH, dtype=np.int32).reshape(2, LENGTH)
    return {
        "logits": described(model.module(tokens_BxS)),
        "encode": described(model.encode(TEXTS)),
        "score": described(model.score(TEXTS)),
        "position_bias": described(model.position_bias(LENGTH)),
    }


def results_of_prepared(folder):
    """The token ids of each split, in order."""
    from array_record.python.array_record_module import ArrayRecordReader

    index = json.loads((folder / "index.json").read_text())
    tokens = {}
    for name, split in index["splits"].items():
        readers = [ArrayRecordReader(str(folder / shard["file"])) for shard in split["shards"]]
        records = [record for reader in readers for record in reader.read_all()]
        ids = np.frombuffer(b"".join(records), np.dtype(index["dtype"]).newbyteorder("<"))
        tokens[name] = described(ids.reshape(-1, index["length"]))
    return tokens


def results():
    return {
        "machine": machine(),
        "processor": processor(),
        "pinned": results_of_run(Path("pinned")),
        "pinned_data": results_of_prepared(Path("pinned/data/rows")),
        "small": results_of_run(Path("small")),
        "exported": results_of_model("exported"),
        "prepared": results_of_prepared(Path("prepared")),
    }


def prepare(out):
    words = (f"--task={TASK}", "--vocabulary=vocabulary.model", f"--length={LENGTH}")
    tupe("prepare", *words, "--cleaning=none", "--workers=1", f"--out={out}")


def write():
    """The fixtures, and what the runs gave."""
    tupe("pretrain", *PINNED, "--workdir=pinned")
    words = (f"--task={TASK}", f"--size={TOKENS}", "--cleaning=none", "--out=vocabulary.model")
    tupe("vocab", *words)
    prepare("prepared")
    tupe("pretrain", *SMALL, "--workdir=small")
    tupe("export", "small", "exported")
    content = results()
    # What a kill leaves behind: metrics of steps that the last checkpoint does not have.
    shutil.rmtree("small/checkpoints/12")
    for plot in Path("small").glob("*.png"):
        plot.unlink()
    metrics = Path("small/metrics.jsonl")
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(line for line in lines if json.loads(line)["step"] <= KILLED_AT))
    return content


def replay():
    """The same with the code of today, from what `write` left."""
    tupe("pretrain", *PINNED, "--workdir=pinned")
    tupe("pretrain", *SMALL, "--workdir=small")
    tupe("pretrain", *SMALL, *ON_PREPARED, "--workdir=on_prepared")
    prepare("prepared_today")
    return {
        **results(),
        "on_prepared": results_of_run(Path("on_prepared")),
        "prepared_today": results_of_prepared(Path("prepared_today")),
    }


if __name__ == "__main__":
    found = {"write": write, "replay": replay}[sys.argv[1]]()
    Path("results.json").write_text(json.dumps(found, indent=1) + "\n")
