"""A model folder with its card: what somebody who finds it wants to know, as Markdown."""

import contextlib
import functools
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from tupe_jax import __version__
from tupe_jax.config.loading import (
    from_config_dict,
    known_configs,
    load_config,
    nearest_config,
    to_config_dict,
)
from tupe_jax.config.schema import Config, position_name
from tupe_jax.config.validation import from_mapping
from tupe_jax.inference.loading import Pretrained
from tupe_jax.interop.checkpoint_file import CHECKPOINT, DICTIONARY
from tupe_jax.interop.model_folder import VOCABULARY, HeadFacts, save_folder
from tupe_jax.model.positions import longest_input
from tupe_jax.run.resume_checks import flattened
from tupe_jax.utils.errors import UserError

FORMS = ("", ":modern", ":tiny")


Format = Literal["folder", "fairseq", "hf"]
"""In which a model is exported."""


def save_model(pretrained: Pretrained, out: Path, name: str | None = None) -> None:
    """Write a model folder, which must not exist yet, and its card, under the folder's name."""
    card = model_card(pretrained, name or out.name)
    save_folder(pretrained.model(), out, pretrained.vocabulary_file, pretrained.facts, card)


def model_card(pretrained: Pretrained, name: str, format: Format = "folder") -> str:
    """Use, settings, data, steps, scores and the command, as far as they are known."""
    encoding = position_name(pretrained.config.position)
    origin = f" It was imported from {pretrained.origin}." if pretrained.origin else ""
    sections = [
        f"# {name}",
        f"A bidirectional encoder with the positional encoding `{encoding}`, written by tupe_jax "
        f"{__version__}.{origin}",
        _use(pretrained, name, format),
        "## Model",
        _table(_sizes(pretrained)),
        *_pretraining(pretrained),
        *(part for head, facts in pretrained.heads.items() for part in _head(head, facts)),
        "## All settings of the model",
        _table(dict(flattened(asdict(pretrained.config)))),
    ]
    return "\n\n".join(sections) + "\n"


def _use(pretrained: Pretrained, name: str, format: Format) -> str:
    words, vocabulary = pretrained.config.masked_word_head, pretrained.known_vocabulary
    if format == "fairseq":
        command = ["tupe", "import-fairseq", f"{name}/{CHECKPOINT}", f"{name}_imported"]
        if vocabulary is None:
            return f"```bash\n{shlex.join(command)}\n```"
        command.append(f"--vocabulary={name}/{VOCABULARY}")
        load = f"load_model_ensemble([{f'{name}/{CHECKPOINT}'!r}], {{'data': {name!r}}})"
        return (
            f"For the official TUPE code: `checkpoint_utils.{load}`. {CHECKPOINT} has the official "
            f"token ids, which {DICTIONARY} defines. `<file>`, `<email>` and `<url>` are added: "
            "they read as [UNK] and are never predicted. Back into the token ids of tupe_jax:\n\n"
            f"```bash\n{shlex.join(command)}\n```"
        )
    if format == "hf":
        model = "BertForMaskedLM" if words else "BertModel"
        load = f"model = transformers.{model}.from_pretrained({name!r})"
        return f"```python\nimport transformers\n\n{load}\n```"
    call = 'fill_mask("a text with a [MASK] in it")' if words else 'encode("a text")'
    if vocabulary is None:
        call = "module  # without a vocabulary it reads no texts"
    for facts in pretrained.heads.values():
        call = 'predict(("a text", "another"))' if facts.texts == 2 else 'predict("a text")'
    return f"```python\nimport tupe_jax\n\nmodel = tupe_jax.load({name!r})\nmodel.{call}\n```"


def _sizes(pretrained: Pretrained) -> dict[str, Any]:
    config, vocabulary = pretrained.config, pretrained.known_vocabulary
    sha256 = "unknown" if vocabulary is None else f"sha256 {vocabulary.sha256}"
    return {
        "parameters": f"{sum(array.size for array in pretrained.params.values()):,}",
        "layers x width, heads": f"{config.num_layers} x {config.hidden_size}, {config.num_heads}",
        "vocabulary": f"{config.vocab_size:,} pieces, {sha256}",
        "longest text, tokens": longest_input(config),
    }


def _pretraining(pretrained: Pretrained) -> Iterator[str]:
    if not pretrained.run:
        return
    config, loss = pretrained.run["config"], pretrained.run["valid_loss"]
    rows, length = config["train"]["batch_size"], config["data"]["length"]
    step = pretrained.step or 0
    yield "## Pre-training"
    yield _table(
        {
            "data": config["data"]["task"],
            "steps": f"{step:,} of {config['train']['steps']:,}",
            "rows x tokens in a step": f"{rows} x {length}",
            "tokens seen": f"{step * rows * length:,}",
            "validation loss, nats per masked token": "unknown" if loss is None else f"{loss:.4f}",
        }
    )
    command = pretraining_command(config)
    if command is not None:
        yield f"```bash\n{command}\n```"


def _head(name: str, facts: HeadFacts) -> Iterator[str]:
    yield f"## Fine-tuning: {name}"
    reads = {1: "a text", 2: "a pair of texts", None: "a text or a pair"}[facts.texts]
    scores = {
        f"{split} {metric}": value
        for split, of_split in facts.trial.get("scores", {}).items()
        for metric, value in of_split.items()
    }
    how = {key: facts.trial[key] for key in ("learning_rate", "seed", "epoch") if facts.trial}
    answers = ", ".join(facts.classes) or "a score"
    yield _table({"reads": reads, "answers": answers, **how, **scores})
    if "command" in facts.trial:
        yield f"```bash\n{facts.trial['command']}\n```"


def _table(values: Mapping[str, Any]) -> str:
    # A bar, as in a path, would end its cell.
    cells = [(key, str(value).replace("|", "\\|")) for key, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in cells)])


def pretraining_command(saved: Mapping[str, Any]) -> str | None:
    """The `tupe pretrain` with the fewest settings that has this config.

    None if this version cannot have it.
    """
    try:
        wanted = _settings(from_mapping(Config, saved, "config"))
    except UserError:
        return None
    return shlex.join(["tupe", "pretrain", *nearest_config(wanted, _shipped())])


@functools.cache
def _shipped() -> dict[str, dict[str, Any]]:
    """The settings of every shipped config of pre-training, in each of its forms."""
    shipped = {}
    for spec in (f"{name}{form}" for name in known_configs() for form in FORMS):
        with contextlib.suppress(UserError):  # no such form, or a config of something else
            shipped[spec] = _settings(from_config_dict(load_config(spec)))
    return shipped


def _settings(config: Config) -> dict[str, Any]:
    """By the names that overrides have."""
    named = flattened(to_config_dict(config).to_dict())
    return {name: tuple(value) if isinstance(value, list) else value for name, value in named}
