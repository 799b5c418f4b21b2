"""Config files: found by path or name, with `:form`, overridden by `--config.section.key=value`.

A config file has a function `get_config(form)` that returns a ConfigDict. The shipped ones start
from a recipe, a file in `configs/recipes/` that has every setting, and change what differs.
"""

import ast
import dataclasses
import runpy
import traceback
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from tupe_jax.config.schema import Config
from tupe_jax.config.validation import did_you_mean, from_mapping, one_of
from tupe_jax.utils.errors import UserError

# A wheel has the configs inside the package; in a source tree they are next to it.
_PACKAGE = Path(__file__).parents[1]
_INSTALLED = _PACKAGE / "configs"
CONFIG_FOLDER = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / "configs"
RECIPE_FOLDER = CONFIG_FOLDER / "recipes"


@dataclass(frozen=True)
class ConfigKind:
    """What a config describes; each kind is for other commands."""

    name: str
    command: str
    key: str
    """A setting that no other kind has."""
    example: str


STUDY = ConfigKind("study", "ablate", "variants", "ablations/paper_table")
PROTOCOL = ConfigKind("GLUE", "glue", "tasks", "glue")
FINETUNING = ConfigKind("fine-tuning", "finetune", "epochs", "finetune")
PRETRAINING = ConfigKind("pre-training", "pretrain", "model", "tupe_r")
KINDS = (STUDY, PROTOCOL, FINETUNING, PRETRAINING)


def load_config(spec: str, overrides: Sequence[str] = ()) -> ConfigDict:
    """`configs/tupe_r.py:tiny` or `tupe_r:tiny`, with `--config.section.key=value` applied."""
    name, _, form = spec.partition(":")
    path = _find(name)
    config = _run_file(path, form)
    # The last override of a setting counts; absl would append to a tuple instead.
    last = {override.partition("=")[0]: override for override in overrides}
    for override in last.values():
        _declare_option(config, override)
        _check_name(config, override)
    argv = ["tupe", *last.values()]
    values = flags.FlagValues()
    try:
        config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=argv)
        values(argv)
    except flags.Error as error:
        raise UserError(str(error).splitlines()[0]) from error
    return config


def recipe(name: str) -> ConfigDict:
    """A new copy of `configs/recipes/<name>.py`, for a config file to change."""
    path = RECIPE_FOLDER / f"{name}.py"
    one_of(path.stem, [file.stem for file in sorted(path.parent.glob("*.py"))], "form")
    return _run_file(path, form="")


def kind_of(values: Container[str]) -> ConfigKind | None:
    """None for a config that has none of the keys."""
    return next((kind for kind in KINDS if kind.key in values), None)


def require_kind(values: Container[str], wanted: ConfigKind) -> None:
    """Raise if a config is for another command: all its settings would be unknown here."""
    kind = kind_of(values)
    if kind and kind != wanted:
        raise UserError(
            f"this is a {kind.name} config, for `tupe {kind.command}`; give a {wanted.name} "
            f"config, such as --config={wanted.example}"
        )


def to_config_dict(config: Config) -> ConfigDict:
    """The sections as a user overrides them: `position` is not inside `model`."""
    sections: dict[str, Any] = dataclasses.asdict(config)
    return ConfigDict({**sections, "position": sections["model"].pop("position")})


def from_config_dict(values: ConfigDict) -> Config:
    """The checked config of a pre-training run."""
    require_kind(values, PRETRAINING)
    sections = values.to_dict()
    model = sections.get("model", {})
    if "position" in sections:
        model = {**model, "position": sections.pop("position")}
    return from_mapping(Config, {**sections, "model": model}, "config")


def _run_file(path: Path, form: str) -> ConfigDict:
    try:
        definitions = runpy.run_path(str(path))
        if "get_config" not in definitions:
            raise UserError(f"{path} has no function get_config; see configs/tupe_r.py")
        config = definitions["get_config"](*([form] if form else []))
    except UserError:
        raise
    except Exception as error:  # whatever the user's file raises
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
    """All shipped configs by name, such as `tupe_r` and `ablations/positions`; no recipes."""
    return {
        path.relative_to(CONFIG_FOLDER).with_suffix("").as_posix(): path
        for path in sorted(CONFIG_FOLDER.rglob("*.py"))
        if RECIPE_FOLDER not in path.parents
    }


def nearest_config(
    wanted: Mapping[str, Any], shipped: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """The flags with the fewest overrides that give the wanted settings."""
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
            f"no config {name!r}{did_you_mean(key, known)}; give a file or one of "
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
    """Refuse a setting that the config does not have, and suggest a similar one."""
    section = "config"
    for name in override.partition("=")[0].removeprefix("--config.").split("."):
        known = config if isinstance(config, ConfigDict) else ()
        if name not in known:
            raise UserError(
                f"{override}: {section} has no setting {name!r}{did_you_mean(name, known)}"
            )
        config, section = config[name], f"{section}.{name}"
