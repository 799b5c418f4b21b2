"""Print what makes a shell complete `tupe`: commands, their arguments, names of configs.

  tupe completion bash >> ~/.bash_completion
  tupe completion zsh > "${fpath[1]}/_tupe"
  tupe completion fish > ~/.config/fish/completions/tupe.fish

Or for this shell only: source <(tupe completion bash)
"""

import argparse

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(arguments: argparse.Namespace) -> None:
    from tupe_jax.commands.completion_scripts import script

    print(script(arguments.shell), end="")
