"""Config files: found by path or name, with `:form`, overridden by `--config.section.key=value`."""

import ast
import runpy
import traceback
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from tupe_jax.config.validation import did_you_mean
from tupe_jax.utils.errors import UserError

# A wheel carries the files inside the package; in a source tree they stand beside it.
_PACKAGE = Path(__file__).parents[1]
_INSTALLED = _PACKAGE / "configs"  # where a wheel puts them
CONFIG_FOLDER = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / "configs"


@dataclass(frozen=True)
class Kind:
    """What a config is of; each is read by other commands."""

    name: str
    sign: str
    """A setting that no other kind has."""
    example: str


STUDY = Kind("a study, for `tupe ablate`", "variants", "ablations/paper_table")
PROTOCOL = Kind("a protocol, for `tupe glue`", "tasks", "glue")
FINETUNING = Kind("a fine-tuning, for `tupe finetune`", "epochs", "finetune")
PRETRAINING = Kind("a pre-training, as for `tupe pretrain`", "model", "tupe_r")
KINDS = (STUDY, PROTOCOL, FINETUNING, PRETRAINING)


def load_config(spec: str, overrides: Sequence[str] = ()) -> ConfigDict:
    """`configs/tupe_r.py:tiny` or `tupe_r:tiny`, with `--config.section.key=value` applied."""
    name, _, form = spec.partition(":")
    path = _find(name)
    config = _run_file(path, form)
    argv = ["tupe", *overrides]
    for override in overrides:
        _declare_option(config, override)
        _check_name(config, override)
    values = flags.FlagValues()
    try:
        config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=argv)
        values(argv)
    except flags.Error as error:
        raise UserError(str(error).splitlines()[0]) from error
    return config


def require_kind(values: Container[str], wanted: Kind) -> None:
    """Refuse a config that another command reads: its settings would be unknown one by one."""
    for kind in KINDS:
        if kind != wanted and kind.sign in values:
            raise UserError(
                f"this config is {kind.name}; needed is {wanted.name}, such as "
                f"--config={wanted.example}"
            )


def _run_file(path: Path, form: str) -> ConfigDict:
    try:
        definitions = runpy.run_path(str(path))
        if "get_config" not in definitions:
            raise UserError(f"{path} has no function get_config; see configs/tupe_r.py")
        config = definitions["get_config"](*([form] if form else []))
    except UserError:
        raise
    except Exception as error:  # whatever is wrong in a user's file is the user's to mend
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f":{frame.lineno}" for frame in frames if frame.filename == str(path)]
        where = f"{path}{lines[-1] if lines else ''}"
        raise UserError(f"{where}: {type(error).__name__}: {error}") from error
    if not isinstance(config, ConfigDict):
        raise UserError(
            f"{path}: get_config returns {type(config).__name__}, not a ConfigDict; see "
            "configs/tupe_r.py"
        )
    return config


def known_configs() -> dict[str, Path]:
    """All shipped configs by name; those in a subfolder are `folder/name`."""
    return {
        path.relative_to(CONFIG_FOLDER).with_suffix("").as_posix(): path
        for path in sorted(CONFIG_FOLDER.rglob("*.py"))
    }


def nearest_config(
    wanted: Mapping[str, Any], shipped: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """The flags with the fewest overrides that give the wanted settings, by their full names."""
    overrides = {
        spec: [
            f"--config.{name}={value}" for name, value in wanted.items() if value != has.get(name)
        ]
        for spec, has in shipped.items()
    }
    spec = min(overrides, key=lambda spec: len(overrides[spec]))
    return [f"--config={spec}", *overrides[spec]]


def _find(name: str) -> Path:
    if Path(name).is_file():
        return Path(name)
    known = known_configs()
    key = name.removeprefix("configs/").removesuffix(".py")
    if key not in known:
        raise UserError(
            f"no config {name!r}{did_you_mean(key, known)}: neither a file nor one of "
            f"{', '.join(known)}"
        )
    return known[key]


def _declare_option(config: ConfigDict, override: str) -> None:
    """Let a flag set an option of an encoding: the encoding names its options, not the config."""
    name, _, value = override.partition("=")
    *sections, option = name.removeprefix("--config.").split(".")
    if sections[-2:] != ["position", "options"]:
        return
    for section in sections:
        config = config.get(section, ConfigDict())
    if option not in config:
        try:
            config[option] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            config[option] = value


def _check_name(config: Any, override: str) -> None:
    """Fail on a setting that the config does not have, naming a near one."""
    section = "config"
    for name in override.partition("=")[0].removeprefix("--config.").split("."):
        known = config if isinstance(config, ConfigDict) else ()
        if name not in known:
            raise UserError(
                f"{override}: {section} has no setting {name!r}{did_you_mean(name, known)}"
            )
        config, section = config[name], f"{section}.{name}"
