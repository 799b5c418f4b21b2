"""Write a model folder with its model card."""

import contextlib
import functools
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict
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
from tupe_jax.inference.trained_model import TrainedModel
from tupe_jax.interop.fairseq_checkpoint import CHECKPOINT, DICTIONARY
from tupe_jax.interop.hugging_face.exporting import GENERATOR_FOLDER, architecture
from tupe_jax.interop.model_folder import SENTENCEPIECE_TOKENIZER, HeadMetadata, write_folder
from tupe_jax.model.positions import longest_input
from tupe_jax.objectives.registry import make_objective
from tupe_jax.run.resume_checks import flattened
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path
from tupe_jax.utils.text import markdown_table

FORMS = ("", ":modern", ":tiny")


Format = Literal["folder", "fairseq", "hf", "sentence-transformers"]
"""The formats of `tupe export`."""


def save_model(model: TrainedModel, out: Path, name: str | None = None) -> None:
    """Write a model to a new folder; the card calls it `name`, by default the folder's name."""
    tokenizer = model.optional_tokenizer
    write_folder(
        out,
        model.config,
        model.params,
        tokenizer=None if tokenizer is None else tokenizer.content,
        metadata=model.metadata,
        generator=None
        if model.generator is None
        else (model.generator.config, model.generator.params),
        card=model_card(model, name or out.name),
    )


def model_card(model: TrainedModel, name: str, format: Format = "folder") -> str:
    """Usage, sizes, pre-training, fine-tuning and settings, as far as they are known."""
    encoding = position_name(model.config.position)
    origin = f" It was imported from {model.metadata.origin}." if model.metadata.origin else ""
    sections = [
        f"# {name}",
        f"A bidirectional encoder with the positional encoding `{encoding}`, written by tupe_jax "
        f"{__version__}.{origin}",
        _use(model, name, format),
        "## Model",
        _table(_sizes(model)),
        *_pretraining(model),
        *(part for item in model.metadata.heads.items() for part in _head(*item)),
        "## All settings of the model",
        _table(dict(flattened(asdict(model.config)))),
    ]
    return "\n\n".join(sections) + "\n"


def _use(model: TrainedModel, name: str, format: Format) -> str:
    has_lm_head, tokenizer = model.config.masked_word_head, model.optional_tokenizer
    if format == "fairseq":
        command = ["tupe", "import-fairseq", f"{name}/{CHECKPOINT}", f"{name}_imported"]
        if tokenizer is None:
            return f"```bash\n{shlex.join(command)}\n```"
        command.append(f"--vocabulary={name}/{SENTENCEPIECE_TOKENIZER}")
        load = f"load_model_ensemble([{f'{name}/{CHECKPOINT}'!r}], {{'data': {name!r}}})"
        return (
            f"For the official TUPE code: `checkpoint_utils.{load}`. {CHECKPOINT} has the official "
            f"token ids, which {DICTIONARY} defines. `<file>`, `<email>` and `<url>` are added: "
            "they read as [UNK] and are never predicted. Back into the token ids of tupe_jax:\n\n"
            f"```bash\n{shlex.join(command)}\n```"
        )
    if format == "hf":
        load = f"model = transformers.{architecture(model.config)}.from_pretrained({name!r})"
        if model.generator is not None:
            module = architecture(model.generator.config, as_electra=True)
            inside = f"{name}/{GENERATOR_FOLDER}"
            load += f"\ngenerator = transformers.{module}.from_pretrained({inside!r})"
        return f"```python\nimport transformers\n\n{load}\n```"
    if format == "sentence-transformers":
        load = f'model = SentenceTransformer({name!r})\nmodel.encode(["a text", "another"])'
        imported = "from sentence_transformers import SentenceTransformer"
        return f"```python\n{imported}\n\n{load}\n```"
    fills = has_lm_head or model.generator is not None
    call = 'fill_mask("a text with a [MASK] in it")' if fills else 'encode("a text")'
    if tokenizer is None:
        call = "module  # without a tokenizer it cannot read text"
    for head in model.metadata.heads.values():
        call = 'predict(("a text", "another"))' if head.texts == 2 else 'predict("a text")'
    return f"```python\nimport tupe_jax\n\nmodel = tupe_jax.load({name!r})\nmodel.{call}\n```"


def _sizes(model: TrainedModel) -> dict[str, Any]:
    config, tokenizer = model.config, model.optional_tokenizer
    sha256 = "unknown" if tokenizer is None else f"sha256 {tokenizer.sha256}"
    generator = {}
    if model.generator is not None:
        of = model.generator.config
        generator = {
            "generator": f"{of.num_layers} x {of.hidden_size}, {of.num_heads} heads, "
            f"`{position_name(of.position)}`"
        }
    return {
        "parameters": f"{sum(array.size for array in model.params.values()):,}",
        "layers x width, heads": f"{config.num_layers} x {config.hidden_size}, {config.num_heads}",
        "vocabulary": f"{config.vocab_size:,} tokens, {sha256}",
        "longest text, tokens": longest_input(config),
        **generator,
    }


def _pretraining(model: TrainedModel) -> Iterator[str]:
    if not model.metadata.run:
        return
    config, loss = model.metadata.run["config"], model.metadata.run["valid_loss"]
    batch_size, length = config["train"]["batch_size"], config["data"]["length"]
    step = model.metadata.step or 0
    yield "## Pre-training"
    yield _table(
        {
            "data": config["data"]["task"],
            "steps": f"{step:,} of {config['train']['steps']:,}",
            "sequences x tokens in a step": f"{batch_size} x {length}",
            "tokens seen": f"{step * batch_size * length:,}",
            _loss_label(config): "unknown" if loss is None else f"{loss:.4f}",
        }
    )
    command = pretraining_command(config)
    if command is not None:
        yield f"```bash\n{command}\n```"


def _loss_label(saved: Mapping[str, Any]) -> str:
    """With the unit, unless the config is one of another version."""
    with contextlib.suppress(UserError):
        config = from_mapping(Config, saved, "config")
        return f"validation loss, {make_objective(config).loss_unit}"
    return "validation loss"


def _head(name: str, head: HeadMetadata) -> Iterator[str]:
    yield f"## Fine-tuning: {name}"
    reads = {1: "a text", 2: "a pair of texts", None: "a text or a pair"}[head.texts]
    scores = {
        f"{split} {metric}": value
        for split, of_split in head.trial.get("scores", {}).items()
        for metric, value in of_split.items()
    }
    how = {key: head.trial[key] for key in ("learning_rate", "seed", "epoch") if head.trial}
    answers = ", ".join(head.classes) or "a score"
    yield _table({"reads": reads, "answers": answers, **how, **scores})
    if "command" in head.trial:
        yield f"```bash\n{head.trial['command']}\n```"


def _table(values: Mapping[str, Any]) -> str:
    rows = [("", ""), *((key, str(value)) for key, value in values.items())]
    return "\n".join(markdown_table(rows, right=False))


def pretraining_command(saved: Mapping[str, Any]) -> str | None:
    """The shortest `tupe pretrain` command for a config; None for one of another version."""
    try:
        wanted = _settings(from_mapping(Config, saved, "config"))
    except UserError:
        return None
    return shlex.join(["tupe", "pretrain", *nearest_config(wanted, _shipped())])


@functools.cache
def _shipped() -> dict[str, dict[str, Any]]:
    """The settings of every shipped pre-training config, in each of its forms."""
    shipped = {}
    for spec in (f"{name}{form}" for name in known_configs() for form in FORMS):
        with contextlib.suppress(UserError):  # no such form, or not for pre-training
            shipped[spec] = _settings(from_config_dict(load_config(spec)))
    return shipped


def _settings(config: Config) -> dict[str, Any]:
    """The values by the names of their overrides."""
    named = flattened(to_config_dict(config).to_dict())
    return {name: tuple(value) if isinstance(value, list) else value for name, value in named}
