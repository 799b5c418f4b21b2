"""Print every setting of a config, or how two configs differ.

  tupe config tupe_r
  tupe config tupe_r:tiny --config.train.steps=1000
  tupe config tupe_r --diff tupe_r:modern
  tupe config ablations/paper_table:paper

NAME is a file or the name of a shipped config, with `:form`: of pre-training, fine-tuning, GLUE or
a study. Overrides change NAME, not OTHER. A setting `train.steps` is `config.train.steps` in a
config file and `--config.train.steps=VALUE` on the command line.
"""

import argparse
import dataclasses
import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tupe_jax.utils.errors import UserError
from tupe_jax.utils.text import aligned_table

if TYPE_CHECKING:
    from ml_collections import ConfigDict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="NAME", help="a config, such as tupe_r:tiny")
    parser.add_argument("--diff", metavar="OTHER", help="print only what differs from this config")


def run(arguments: argparse.Namespace) -> None:
    from tupe_jax.config.loading import load_config

    values = load_config(arguments.config, arguments.overrides)
    settings = flatten(resolve(values))
    if arguments.diff is None:
        print(as_text(settings))
        return
    other = load_config(arguments.diff)
    _require_same_kind(values, arguments.config, other, arguments.diff)
    label = f"{arguments.config} + overrides" if arguments.overrides else arguments.config
    print(as_diff(label, settings, arguments.diff, flatten(resolve(other))))


def resolve(values: "ConfigDict") -> Any:
    """The checked dataclass of a config of any kind."""
    from tupe_jax.config.loading import FINETUNING, PROTOCOL, STUDY, from_config_dict, kind_of

    kind = kind_of(values)
    if kind == STUDY:
        from tupe_jax.ablation.config import ablation_config

        return ablation_config(values)
    if kind == PROTOCOL:
        from tupe_jax.finetune.glue.protocol import glue_config

        return glue_config(values)
    if kind == FINETUNING:
        from tupe_jax.config.validation import from_mapping
        from tupe_jax.finetune.config import FinetuneConfig

        return from_mapping(FinetuneConfig, values, "config")
    return from_config_dict(values)


def flatten(config: Any) -> dict[str, Any]:
    """Every setting by the name that overrides have, in the order of the dataclasses."""
    # In overrides `position` is not inside `model`.
    return {
        name.replace("model.position.", "position."): value for name, value in _fields(config, "")
    }


def _fields(config: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(config):
        name, value = f"{prefix}{field.name}", getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _fields(value, f"{name}.")
        elif isinstance(value, Mapping):  # options of an encoding
            yield from ((f"{name}.{option}", chosen) for option, chosen in value.items())
        elif field.name == "variants":
            for variant in value:
                described = {"encoding": variant.encoding, **variant.settings}
                yield f"{name}[{_literal(variant.name)}]", described
        else:
            yield name, value


def as_text(settings: Mapping[str, Any]) -> str:
    """A line for each setting, and an empty line between sections."""
    return "\n\n".join(
        "\n".join(f"{name} = {_literal(settings[name])}" for name in names)
        for _, names in groupby(settings, key=_section)
    )


def _section(name: str) -> str:
    """`train` for `train.steps`, `variants` for `variants["w0.5"]`."""
    before, bracket, _ = name.partition("[")
    return before if bracket else name.rpartition(".")[0]


def as_diff(
    label: str, settings: Mapping[str, Any], other_label: str, others: Mapping[str, Any]
) -> str:
    """A table of the settings that differ, with both values."""
    settings, others = _one_row_per_setting(settings), _one_row_per_setting(others)
    names = [*settings, *(name for name in others if name not in settings)]
    missing = object()
    table = [
        (name, *("-" if value is missing else _literal(value) for value in pair))
        for name in names
        if (pair := (settings.get(name, missing), others.get(name, missing)))[0] != pair[1]
    ]
    if not table:
        return f"{label} and {other_label} have the same settings"
    return "\n".join(aligned_table([("", label, other_label), *table]))


def _one_row_per_setting(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A row for each setting of a variant: all in one row make a table too wide to read."""
    rows: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            rows |= {f"{name}.{setting}": chosen for setting, chosen in value.items()}
        else:
            rows[name] = value
    return rows


def _literal(value: Any) -> str:
    """As a config file would have it."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case tuple():
            return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
        case Mapping():
            return f"{{{', '.join(f'{_literal(k)}: {_literal(v)}' for k, v in value.items())}}}"
    return repr(value)


def _require_same_kind(config: "ConfigDict", name: str, other: "ConfigDict", diff: str) -> None:
    from tupe_jax.config.loading import PRETRAINING, kind_of

    kind, other_kind = (kind_of(values) or PRETRAINING for values in (config, other))
    if kind != other_kind:
        raise UserError(
            f"--diff={diff} is a {other_kind.name} config, but {name} is a {kind.name} config; "
            "compare configs of one kind"
        )
