"""Config files: found by path or name, with `:form`, overridden by `--config.section.key=value`."""

import runpy
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from tupe_jax.checks import did_you_mean
from tupe_jax.errors import UserError

# In a source tree the files stand beside the package; a wheel carries them inside it.
CONFIG_FOLDERS = (
    Path(__file__).parent.parent / "configs",
    Path(__file__).parent / "configs",
)


def load_config(spec: str, overrides: Sequence[str] = ()) -> ConfigDict:
    """`configs/tupe_r.py:tiny` or `tupe_r:tiny`, with `--config.section.key=value` applied."""
    name, _, form = spec.partition(":")
    path = _find(name)
    config = _run_file(path, form)
    argv = ["tupe", *overrides]
    for override in overrides:
        _check_name(config, override)
    values = flags.FlagValues()
    try:
        config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=argv)
        values(argv)
    except flags.Error as error:
        raise UserError(str(error).splitlines()[0]) from error
    return config


def _run_file(path: Path, form: str) -> ConfigDict:
    try:
        definitions = runpy.run_path(str(path))
        if "get_config" not in definitions:
            raise UserError(f"{path} has no function get_config; see configs/tupe_r.py")
        config: ConfigDict = definitions["get_config"](*([form] if form else []))
    except UserError:
        raise
    except Exception as error:  # whatever is wrong in a user's file is the user's to mend
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f":{frame.lineno}" for frame in frames if frame.filename == str(path)]
        where = f"{path}{lines[-1] if lines else ''}"
        raise UserError(f"{where}: {type(error).__name__}: {error}") from error
    return config


def known_configs() -> dict[str, Path]:
    """All shipped configs by name; those in a subfolder are `folder/name`."""
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for folder in reversed(CONFIG_FOLDERS)
        for path in sorted(folder.rglob("*.py"))
    }


def nearest_config(
    wanted: Mapping[str, Any], shipped: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """The flags with the fewest overrides that give the wanted settings, by their full names."""
    overrides = {
        spec: [f"--config.{name}={value}" for name, value in wanted.items() if value != has[name]]
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
