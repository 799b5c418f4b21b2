"""The names that users' files and scripts depend on.

`python -m tests.compatibility.names` writes `serialized_names.json` again: for a name that is added
on purpose, never for one that vanished.
"""

import dataclasses
import json
import re
import runpy
import tempfile
from pathlib import Path

from tests.compatibility import runs
from tests.compatibility.replaying import replay, run
from tests.users import ROOT

GOLDEN = Path(__file__).with_name("serialized_names.json")
FINETUNE = (
    "--checkpoint=exported",
    "--task=builtin_cola",
    "--config=finetune:quick",
    "--workdir=finetuned",
    "--train_examples=32",
    "--dev_examples=16",
    "--config.epochs=1",
    f"--config.length={runs.LENGTH}",
)
WITH_AVERAGE = (
    *runs.SMALL,
    "--config.train.steps=1",
    "--config.train.ema_decay=0.5",
    "--config.optimizer.name=adamw",
    "--config.model.pre_layer_norm=True",
)
RANDOM_NAMES = {
    r"/d/[0-9a-f]{32}$": "/d/<hash>",
    r"events\.out\.tfevents\..*": "events.out.tfevents.<time>",
}


def keys(value, path=""):
    """The paths of all settings; the elements of a list share theirs."""
    if dataclasses.is_dataclass(value):
        value = dataclasses.asdict(value)
    if isinstance(value, dict) and value:
        return {k for name, part in value.items() for k in keys(part, f"{path}.{name}".strip("."))}
    if isinstance(value, list | tuple) and any(
        isinstance(part, dict) or dataclasses.is_dataclass(part) for part in value
    ):
        return {k for part in value for k in keys(part, f"{path}[]")}
    return {path}


def keys_of_file(path):
    return sorted(keys(json.loads(path.read_text())))


def files(folder):
    names = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    for pattern, name in RANDOM_NAMES.items():
        names = {re.sub(pattern, name, file) for file in names}
    return sorted(names)


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def config_names():
    """Every setting of each kind of config."""
    shipped = {
        "pretraining": "tupe_r",
        "fine-tuning": "finetune",
        "glue": "glue",
        "study": "ablations/paper_table",
    }
    return {
        f"settings of a {kind} config": sorted(
            keys(runpy.run_path(str(ROOT / f"configs/{name}.py"))["get_config"]().to_dict())
        )
        for kind, name in shipped.items()
    }


def shipped_configs():
    folder = ROOT / "configs"
    return sorted(str(file.relative_to(folder).with_suffix("")) for file in folder.rglob("*.py"))


def command_names():
    """The arguments of each command, and their choices."""
    from tupe_jax.cli import COMMANDS, parser_of

    names = []
    for command in COMMANDS:
        names.append(command.name)
        for action in parser_of(command)._actions:
            for name in action.option_strings or [action.dest]:
                choices = f" {{{','.join(map(str, action.choices))}}}" if action.choices else ""
                names.append(f"{command.name} {name}{choices}")
    return sorted(names)


ENCODINGS = tuple(
    name
    for name in shipped_configs()
    if name not in ("finetune", "glue", "locality_symmetry", "quickstart", "tupe_large")
    and not name.startswith(("electra_", "modern_", "ablations/", "recipes/"))
)


def arrays_by_encoding():
    """The arrays of a model with each encoding, without making them."""
    from flax import nnx

    import tupe_jax

    names = {}
    for encoding in ENCODINGS:
        config = tupe_jax.model_config("tiny", encoding)
        model = nnx.eval_shape(lambda config=config: tupe_jax.MaskedLM(config, rngs=nnx.Rngs(0)))
        paths = nnx.to_flat_state(nnx.state(model)).paths
        names[f"arrays of {encoding}"] = sorted(".".join(map(str, path)) for path in paths)
    return names


def names_of_runs(folder):
    """The names in what `tupe pretrain`, `finetune`, `export` and `prepare` write to a folder."""
    about = json.loads((folder / "pinned/checkpoints/12/about/about.json").read_text())
    averaged = folder / "averaged/checkpoints/1"
    return {
        "files of a pre-training": files(folder / "pinned"),
        "settings in config.json of a work directory": keys_of_file(folder / "pinned/config.json"),
        "metadata of a checkpoint": sorted(
            keys({name: value for name, value in about.items() if name != "arrays"})
        ),
        "metadata of an array": sorted(about["arrays"]["step"]),
        "arrays of a checkpoint": sorted(about["arrays"]),
        "arrays of a checkpoint with averaged weights, adamw": sorted(
            runs.arrays_of_checkpoint(averaged)
        ),
        "metrics": sorted({k for line in lines_of(folder / "pinned/metrics.jsonl") for k in line}),
        "files of prepared data": files(folder / "prepared_today"),
        "index of prepared data": keys_of_file(folder / "prepared_today/index.json"),
        "files of an exported model": files(folder / "exported_today"),
        "config.json of an exported model": keys_of_file(folder / "exported_today/config.json"),
        "files of a fine-tuning": files(folder / "finetuned"),
        "JSON of a fine-tuning": sorted(
            f"{file.name}: {key}"
            for file in (folder / "finetuned").rglob("*.json")
            for key in keys_of_file(file)
        ),
    }


def run_more(folder):
    """What `runs.py replay` does not write: averaged weights, an exported model, a fine-tuning."""
    commands = [
        ("pretrain", *WITH_AVERAGE, *runs.ON_PREPARED, "--workdir=averaged"),
        ("export", "small", "exported_today"),
        ("finetune", *FINETUNE),
    ]
    code = f"from tupe_jax.cli import main\nfor c in {commands!r}: assert main(list(c)) == 0, c"
    run(folder, "-c", code)


def all_names(folder):
    """All names, of a folder in which the runs were repeated."""
    run_more(folder)
    return {
        "shipped configs": shipped_configs(),
        "commands": command_names(),
        **config_names(),
        **arrays_by_encoding(),
        **names_of_runs(folder),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        replay(Path(folder))
        GOLDEN.write_text(json.dumps(all_names(Path(folder)), indent=1) + "\n")
