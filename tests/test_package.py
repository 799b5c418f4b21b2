"""What a newcomer meets first: the import, the command, the README."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tupe_jax import cli
from tupe_jax.errors import START_AGAIN_EXIT_CODE, StartAgainError

ROOT = Path(__file__).parent.parent


def python(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_import_is_light():
    assert (
        python("import sys, tupe_jax; print({'jax', 'tensorflow'} & set(sys.modules))") == "set()"
    )


def test_the_model_needs_no_tensorflow():
    script = "import sys, tupe_jax; tupe_jax.MaskedLM; print('tensorflow' in sys.modules)"
    assert python(script) == "False"


def test_help_lists_every_command_and_needs_no_jax():
    listed = python(
        "import sys; from tupe_jax import cli; cli.main(['--help']); "
        "assert 'jax' not in sys.modules"
    )
    for command in cli.COMMANDS:
        assert command.name in listed
        assert command.summary in listed


def test_every_command_explains_itself_with_an_example(capsys):
    for command in cli.COMMANDS:
        with pytest.raises(SystemExit, match=r"^0$"):
            cli.main([command.name, "--help"])
        assert f"tupe {command.name} " in capsys.readouterr().out.split("\n\n", 1)[1]


def test_an_unknown_command_is_one_line(capsys):
    assert cli.main(["pretrane"]) == cli.USER_ERROR_EXIT_CODE
    assert capsys.readouterr().err.count("\n") == 1


def test_trouble_of_the_surroundings_has_an_exit_code_of_its_own(monkeypatch, capsys):
    def fail(arguments):
        raise StartAgainError("the storage failed")

    monkeypatch.setattr("tupe_jax.commands.pretrain.run", fail)
    assert cli.main(["pretrain"]) == START_AGAIN_EXIT_CODE
    assert capsys.readouterr().err == "tupe pretrain: the storage failed\n"


def test_the_readme_code_runs():
    """Each Python block of the README, in order, in one fresh interpreter."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 2
    python("\n".join(blocks))
