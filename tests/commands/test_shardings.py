"""`tupe shardings` against tables that were looked at.

After an intended change, write them anew: `python -m tests.commands.test_shardings`.
"""

import contextlib
import io
import json
from pathlib import Path

import pytest

from tupe_jax import cli

GOLDEN = Path(__file__).parents[1] / "golden" / "shardings"
MESHES = {
    "8_devices": ["--devices=8", "--config.mesh.fsdp=2", "--config.mesh.tensor=2"],
    "2_slices_of_128": [
        "--devices=256",
        "--config.mesh.slice=2",
        "--config.mesh.fsdp=16",
        "--config.mesh.tensor=4",
    ],
}
CONFIGS = {"base": "tupe_r", "large": "tupe_large"}
CASES = [(size, mesh) for size in CONFIGS for mesh in MESHES]


def command(size, mesh):
    return ["shardings", f"--config={CONFIGS[size]}", *MESHES[mesh]]


def output_of(arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert cli.main(arguments) == 0
    return out.getvalue()


@pytest.mark.parametrize(("size", "mesh"), CASES)
def test_the_table_is_the_golden_one(size, mesh):
    golden = (GOLDEN / f"{size}_{mesh}.txt").read_text(encoding="utf-8")
    assert output_of(command(size, mesh)) == golden


def test_json_has_the_same_values():
    found = json.loads(output_of([*command("base", "8_devices"), "--json"]))
    assert found["mesh"] == {"slice": 1, "data": 2, "fsdp": 2, "tensor": 2}
    assert (found["devices"], found["rows_per_device"]) == (8, 64)
    by_name = {parameter["name"]: parameter for parameter in found["parameters"]}
    assert by_name["encoder.layers.mlp_in.kernel"] == {
        "name": "encoder.layers.mlp_in.kernel",
        "axes": ["layers", "embed", "mlp"],
        "shape": [12, 768, 3072],
        "divided_by": [[], ["fsdp"], ["tensor"]],
        "bytes": 12 * 768 * 3072 * 4,
        "bytes_per_device": 12 * 768 * 3072,
    }
    totals = found["totals"]
    assert totals["parameters"]["bytes"] == sum(p["bytes"] for p in found["parameters"])
    # Adam: two moments of every weight, and two counts of steps (its own, the schedule's).
    assert totals["optimizer_state"]["bytes"] == 2 * totals["parameters"]["bytes"] + 8


def test_an_average_of_the_weights_is_counted():
    found = json.loads(
        output_of(["shardings", "--config=tupe_r:tiny", "--config.train.ema_decay=0.9", "--json"])
    )
    assert found["devices"] == 1
    assert found["totals"]["averaged_parameters"] == found["totals"]["parameters"]


@pytest.mark.parametrize(
    ("argument", "words"),
    [("--devices=0", "--devices=0 must be at least 1"), ("--config.mesh.slice=3", "mesh.slice=3")],
)
def test_impossible_device_counts_are_refused(argument, words, capsys):
    assert cli.main(["shardings", "--config=tupe_r:tiny", "--devices=8", argument]) == 2
    assert words in capsys.readouterr().err


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for size, mesh in CASES:
        text = output_of(command(size, mesh))
        (GOLDEN / f"{size}_{mesh}.txt").write_text(text, encoding="utf-8")
