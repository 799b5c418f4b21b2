"""A wheel works where nothing of the source tree is: commands, configs by name, a real run."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


def run(*command, cwd, **environment):
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**kept, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An environment with nothing but the wheel, which finds its requirements among the tests'."""
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    run(*build, cwd=ROOT, PYTHONPATH=os.environ.get("PYTHONPATH", ""))
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    (site_packages,) = environment.glob("lib/python*/site-packages")
    (site_packages / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin", folder


def test_the_wheel_is_what_is_imported_and_brings_the_configs(installed):
    bin_, folder = installed
    script = "import tupe_jax.config.loading as c; print(c.__file__, *c.known_configs())"
    file, *configs = run(bin_ / "python", "-c", script, cwd=folder).split()
    assert Path(file).is_relative_to(bin_.parent)
    assert {"quickstart", "tupe_r", "finetune", "glue"} <= set(configs)
    files = {path for path in (ROOT / "configs").rglob("*.py") if "recipes" not in path.parts}
    assert len(configs) == len(files)


def test_a_config_file_of_ones_own_starts_from_a_recipe(installed):
    bin_, folder = installed
    (folder / "mine.py").write_text(
        "from tupe_jax.config.loading import recipe\n\n\n"
        "def get_config():\n"
        "    return recipe('tiny')\n"
    )
    printed = run(bin_ / "tupe", "config", "mine.py", "--diff=bert_a:tiny", cwd=folder)
    assert printed == "mine.py and bert_a:tiny have the same settings\n"


def test_the_command_explains_itself(installed):
    bin_, folder = installed
    assert "tupe pretrain --config=" in run(bin_ / "tupe", "pretrain", "--help", cwd=folder)


def test_it_pre_trains_outside_of_the_source_tree(installed):
    bin_, folder = installed
    settings = {
        "data.task": "builtin:400",
        "data.length": 16,
        "model.vocab_size": 300,
        "model.hidden_size": 16,
        "model.mlp_size": 16,
        "model.num_layers": 1,
        "train.batch_size": 4,
        "train.steps": 2,
        "eval.rows": 4,
    }
    overrides = [f"--config.{name}={value}" for name, value in settings.items()]
    said = run(bin_ / "tupe", "pretrain", "--config=quickstart", *overrides, cwd=folder)
    assert "validation loss" in said
    run_ = folder / "runs/quickstart"
    assert (run_ / "checkpoints/2").is_dir()
    assert json.loads((run_ / "config.json").read_text())["train"]["steps"] == 2
