"""launch/README.md: its commands exist, and its sums are right."""

import itertools
import re
import shlex

import pytest

from tests.launch.scripts import INSIDE, LAUNCH, ROOT, run
from tupe_jax.config.loading import load_config

TEXT = (LAUNCH / "README.md").read_text()


def commands(text):
    """Every command line of a page, as words."""
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


COMMANDS = commands(TEXT)
ELSEWHERE = [commands((ROOT / page).read_text()) for page in ("README.md", "docs/scale.md")]
OURS = [
    words
    for words in itertools.chain(COMMANDS, *ELSEWHERE)
    if any(re.match(r"launch/.*\.(sh|sbatch)$", word) for word in words)
]


def test_there_is_a_command_for_every_script():
    named = {word for words in OURS for word in words if word.startswith("launch/")}
    scripts = {
        path.relative_to(ROOT).as_posix()
        for path in [*LAUNCH.rglob("*.sh"), *LAUNCH.rglob("*.sbatch")]
    }
    assert named == scripts - {f"launch/{inside}" for inside in INSIDE}


@pytest.mark.parametrize("words", OURS, ids=" ".join)
def test_a_command_of_ours_is_one_that_its_script_takes(words):
    script = next(index for index, word in enumerate(words) if word.startswith("launch/"))
    name, arguments = words[script].removeprefix("launch/"), words[script + 1 :]
    if name == "slurm.sbatch":
        arguments = ["--dry-run", *[word for word in arguments if word != "--dry-run"]]
    elif name == "tpu_vm.sh":
        arguments = [arguments[0], "--dry-run", *arguments[1:]]
    else:
        arguments = ["--dry-run", *arguments]
    done = run(name, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_files_and_configs_of_a_command_exist(words):
    for word in words:
        path = re.search(r"(^|=)(launch/\S+)$", word)
        assert path is None or (ROOT / path[2]).exists(), word
    configs = [word.partition("=")[2] for word in words if re.match(r"--configs?=", word)]
    overrides = [word for word in words if word.startswith("--config.")]
    for config in [name for listed in configs for name in listed.split(",")]:
        load_config(config, overrides)


def test_an_hour_costs_its_chips():
    rows = re.findall(r"^\| (.*) \|$", TEXT.partition("<!-- prices -->")[2], re.MULTILINE)[1:6]
    for row in rows:
        _, _, *numbers = row.split(" | ")
        chips, on_demand, spot, hour, spot_hour = (float(number) for number in numbers)
        assert hour == pytest.approx(chips * on_demand, abs=0.02)
        assert spot_hour == pytest.approx(chips * spot, abs=0.02)
        assert spot < on_demand
    assert len(rows) == 5
