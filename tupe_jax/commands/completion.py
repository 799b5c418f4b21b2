"""Print a completion script for a shell: commands, their arguments, names of configs.

  tupe completion bash >> ~/.bash_completion
  tupe completion zsh > "${fpath[1]}/_tupe"
  tupe completion fish > ~/.config/fish/completions/tupe.fish

For the current shell only: source <(tupe completion bash)
"""

import argparse
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tupe_jax.cli import COMMANDS, parser_of
from tupe_jax.config.loading import known_configs

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(arguments: argparse.Namespace) -> None:
    print(script(arguments.shell), end="")


@dataclass(frozen=True)
class Option:
    """`--name`, what it is for, and whether a value follows it."""

    name: str
    purpose: str
    takes_value: bool

    @property
    def word(self) -> str:
        return f"{self.name}=" if self.takes_value else self.name


Options = Mapping[str, list[Option]]
"""Of each command."""

TAKES_CONFIG = ("--config", "--diff")
"""Options whose value is a config's name, as the argument of `tupe config` is."""


def script(shell: str) -> str:
    """The completion script of a shell."""
    options = {command.name: _options(parser_of(command)._actions) for command in COMMANDS}
    return SCRIPTS[shell](options)


def _options(actions: Iterable[argparse.Action]) -> list[Option]:
    return [
        Option(name, action.help or "", action.nargs != 0)
        for action in actions
        for name in action.option_strings
        if name.startswith("--")
    ]


def _cases(options: Options, template: str) -> str:
    """A branch of a `case` for each command."""
    return "\n".join(
        "      " + template.format(name, " ".join(option.word for option in of_command))
        for name, of_command in options.items()
    )


def _bash(options: Options) -> str:
    takes_config = "|".join(TAKES_CONFIG)
    # The word is cut from the line: bash itself takes --config=name apart at the equals sign.
    return f"""\
_tupe() {{
  local line=${{COMP_LINE:0:COMP_POINT}} words=
  local word=${{line##* }}
  if ((COMP_CWORD == 1)); then
    words='{" ".join(options)}'
  elif [[ $word =~ ^({takes_config})= || ${{COMP_WORDS[1]}} == config && $word != -* ]]; then
    word=${{word#*=}} words='{" ".join(known_configs())}'
  elif [[ $word == -* ]]; then
    case ${{COMP_WORDS[1]}} in
{_cases(options, "{}) words='{}' ;;")}
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  if [[ ${{COMPREPLY[*]}} == *= ]]; then compopt -o nospace; fi
}}
complete -o default -F _tupe tupe
"""


def _zsh(options: Options) -> str:
    commands = " ".join(shlex.quote(f"{command.name}:{command.summary}") for command in COMMANDS)
    takes_config = "|".join(TAKES_CONFIG)
    return f"""\
#compdef tupe
_tupe() {{
  local -a commands=({commands})
  if ((CURRENT == 2)); then
    _describe command commands
  elif [[ $PREFIX == ({takes_config})=* || ($words[2] == config && $PREFIX != -*) ]]; then
    compset -P '*='
    compadd -- {" ".join(known_configs())}
  elif [[ $PREFIX == *=* ]]; then
    compset -P '*='
    _files
  elif [[ $PREFIX == -* ]]; then
    local -a known
    case $words[2] in
{_cases(options, "{}) known=({}) ;;")}
    esac
    # No space after an option that waits for its value.
    compadd -S '' -- ${{(M)known:#*=}}
    compadd -- ${{known:#*=}}
  else
    _files
  fi
}}
if [[ $funcstack[1] == _tupe ]]; then _tupe "$@"; else compdef _tupe tupe; fi
"""


def _fish(options: Options) -> str:
    lines = [
        f"complete -c tupe -f -n __fish_use_subcommand -a {command.name} "
        f"-d {shlex.quote(command.summary)}"
        for command in COMMANDS
    ]
    configs = f" -a {shlex.quote(' '.join(known_configs()))}"
    lines.append(f"complete -c tupe -f -n '__fish_seen_subcommand_from config'{configs}")
    lines += [
        f"complete -c tupe -n '__fish_seen_subcommand_from {name}' -l {option.name[2:]}"
        f"{' -r' * option.takes_value}{configs * (option.name in TAKES_CONFIG)} "
        f"-d {shlex.quote(option.purpose)}"
        for name, of_command in options.items()
        for option in of_command
    ]
    return "\n".join([*lines, ""])


SCRIPTS: Mapping[str, Callable[[Options], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
