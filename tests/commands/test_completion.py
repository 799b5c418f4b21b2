"""Completion scripts know every command, every argument and every config."""

import subprocess
import sys
from pathlib import Path

import pytest

from tupe_jax import cli
from tupe_jax.commands.completion import SCRIPTS, SHELLS, script


@pytest.fixture(scope="module")
def bash(tmp_path_factory):
    file = tmp_path_factory.mktemp("completion") / "tupe.bash"
    file.write_text(script("bash"))

    def complete(line):
        """What bash offers at the end of a line."""
        ask = f"""
compopt() {{ :; }}
source {file}
COMP_LINE='{line}' COMP_POINT={len(line)}
read -ra COMP_WORDS <<< "${{COMP_LINE//=/ = }}"
[[ $COMP_LINE == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_tupe
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
        done = subprocess.run(["bash", "-euc", ask], capture_output=True, text=True, check=True)
        return done.stdout.split()

    return file, complete


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tupe pre", ["pretrain", "predict", "prepare"]),
        ("tupe pretrain --co", ["--config=", "--coordinator="]),
        ("tupe pretrain --config=quick", ["quickstart"]),
        ("tupe conf", ["config"]),
        ("tupe config", ["config"]),
        ("tupe config quick", ["quickstart"]),
        ("tupe config tupe_r --di", ["--diff="]),
        ("tupe config tupe_r --diff=quick", ["quickstart"]),
        ("tupe config tupe_r --diff quick", ["quickstart"]),
        ("tupe compile --config=tupe_r --f", ["--fit"]),
        ("tupe finetune --checkpoint=ru", []),  # a file: bash knows better
        ("tupe analyze ", []),
    ],
)
def test_bash_completes(bash, line, offered):
    assert bash[1](line) == offered


def test_bash_lists_all_commands(bash):
    assert bash[1]("tupe ") == [command.name for command in cli.COMMANDS]


def test_shellcheck_finds_nothing(bash):
    shellcheck = Path(sys.executable).parent / "shellcheck"  # of the test extra
    command = [shellcheck, "--shell=bash", bash[0]]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_argument_is_in_the_script(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for command in cli.COMMANDS:
        assert command.name in text
    option = {"fish": "-l batch-per-device -r"}.get(shell, "--batch-per-device=")
    for word in (option, "attenuated_layer_head"):
        assert word in text


def test_zsh_knows_which_options_take_a_value():
    """It was run by hand: `tupe compile --f` becomes `--fit ` and `--con` becomes `--config=`."""
    text = script("zsh")
    (line,) = (line for line in text.splitlines() if line.strip().startswith("compile)"))
    words = line.partition("known=(")[2].removesuffix(") ;;").split()
    assert {"--config=", "--fit"} <= set(words)
    assert text.startswith("#compdef tupe\n")
    for waiting, space in (("${(M)known:#*=}", "-S '' "), ("${known:#*=}", "")):
        assert f"    compadd {space}-- {waiting}\n" in text


def test_fish_has_a_line_for_each_option_of_each_command():
    lines = script("fish").splitlines()
    assert all(line.startswith("complete -c tupe ") for line in lines)
    commands = [line for line in lines if " -n __fish_use_subcommand -a " in line]
    assert len(commands) == len(cli.COMMANDS)
    of_pretrain = [line for line in lines if "'__fish_seen_subcommand_from pretrain'" in line]
    (config,) = (line for line in of_pretrain if " -l config -r -a " in line)
    assert " quickstart " in config
    of_config = [line for line in lines if "'__fish_seen_subcommand_from config'" in line]
    assert [" quickstart " in line for line in of_config] == [True, False, True]  # NAME, help, diff


def test_each_shell_has_a_script():
    assert set(SHELLS) == set(SCRIPTS)
