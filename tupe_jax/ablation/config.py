"""The config of a study: its variants, their training, and the measurements."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

from ml_collections import ConfigDict

from tupe_jax.config.loading import STUDY, from_config_dict, require_kind, to_config_dict
from tupe_jax.config.schema import POSITION_VARIANTS, Config, with_encoding
from tupe_jax.config.validation import check_fields, check_path, from_mapping, one_of
from tupe_jax.finetune.config import FinetuneConfig
from tupe_jax.finetune.results import trials_of
from tupe_jax.finetune.tasks import KNOWN_TASKS
from tupe_jax.lab.length_extrapolation import check_lengths
from tupe_jax.lab.nli_probes import NLI_TASKS
from tupe_jax.model.positions import encodings
from tupe_jax.objectives.registry import make_objective
from tupe_jax.tokenizers.sentencepiece import SPECIAL_TOKENS
from tupe_jax.utils.errors import UserError

SHARED = (
    "data.",
    "model.vocab_size",
    "train.",
    "eval.",
    "seed",
    "optimizer.peak_learning_rate",
)
"""The settings that all variants share."""


@dataclass(frozen=True)
class Variant:
    """A row of the table: a positional encoding and optional further settings."""

    name: str
    """Used in tables and as the folder of its runs."""
    encoding: str
    """One of `POSITION_VARIANTS`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Other settings than the study's `pretrain`: {"position.decay_left": 0.1}."""
    tuned_as: str = ""
    """The variant whose learning rate is used; empty: this variant is tuned itself."""

    def __post_init__(self) -> None:
        check_fields(self, "variant")
        if not re.fullmatch(r"[A-Za-z0-9][\w.^+=-]*", self.name):
            raise UserError(
                f"variant {self.name!r}: the name is also a folder; use letters, digits and .^+=-"
            )
        one_of(self.encoding, POSITION_VARIANTS, f"encoding of variant {self.name}")
        for setting in self.settings:
            if setting.startswith(SHARED):
                raise UserError(
                    f"variant {self.name} sets {setting}, which all variants share; set "
                    f"pretrain.{setting}, or learning_rates and seeds"
                )


def _small_models() -> FinetuneConfig:
    """Dropout as in pre-training, and no update without effect."""
    paper = FinetuneConfig()
    optimizer = replace(paper.optimizer, warmup_from_zero=False)
    return replace(paper, dropout=-1.0, keep_weights=False, optimizer=optimizer)


@dataclass(frozen=True)
class DownstreamConfig:
    """Fine-tuning of every run: the paper's protocol on each task.

    The score of a run on a task is the best median over seeds of all learning rates.
    """

    tasks: tuple[str, ...] = ()
    learning_rates: tuple[float, ...] = (5e-4,)
    seeds: tuple[int, ...] = (0,)
    data_dir: str = ""
    """Folder with the TSV files of GLUE or SNLI; empty: TFDS on disk."""
    train_examples: int = 4000
    """Size of a built-in task."""
    dev_examples: int = 1000
    finetune: FinetuneConfig = field(default_factory=_small_models)

    def __post_init__(self) -> None:
        check_fields(self, "downstream")
        check_path(self.data_dir, "downstream.data_dir")
        for task in self.tasks:
            one_of(task, KNOWN_TASKS, "task in downstream.tasks")
        _require_different(self.tasks, "downstream.tasks")
        for name in ("learning_rates", "seeds"):
            _require_some(getattr(self, name), f"downstream.{name}")
        trials_of(self.learning_rates, self.seeds)


@dataclass(frozen=True)
class MeasureConfig:
    """The measurements of every run."""

    length: int = 63
    """Positions in the attention matrices, without [CLS]."""
    words: int = 64
    """Number of probing tokens; each fills a sequence, and the matrices are their mean."""
    lengths: tuple[int, ...] = ()
    """Input lengths in tokens with [CLS], to measure the loss on held-out text; empty: none."""
    minimal_pairs: int = 500
    """Number of pairs from the built-in grammar; 0: none."""
    goals: tuple[float, ...] = ()
    """Validation losses in nats; the table has the step at which each of them is first reached."""
    probe_task: str = ""
    """The NLI task of `downstream.tasks` whose models are probed; empty: no probes."""
    probe_pairs: int = 1500
    """Number of sentence pairs that the probes are made from."""
    probe_file: str = ""
    """A file of SNLI with parse trees to take the pairs from; empty: the built-in grammar."""

    @property
    def probe_source(self) -> str:
        """The source of the probe pairs, for reports."""
        return self.probe_file or "the built-in grammar"

    def __post_init__(self) -> None:
        check_fields(self, "measure")
        check_path(self.probe_file, "measure.probe_file")
        if self.probe_task:
            one_of(self.probe_task, NLI_TASKS, "measure.probe_task")
        for name, least in (("length", 3), ("words", 1), ("minimal_pairs", 0), ("probe_pairs", 1)):
            if getattr(self, name) < least:
                raise UserError(f"measure.{name}={getattr(self, name)} must be at least {least}")
        check_lengths(self.lengths, "measure.lengths")
        for goal in self.goals:
            if not 0 < goal < math.inf:
                raise UserError(f"measure.goals={goal} must be a loss in nats, above 0")
        _require_different(self.goals, "measure.goals")


@dataclass(frozen=True)
class AblationConfig:
    """A study: every variant with every seed.

    With several learning rates each variant is tuned first, on `tuning_seed`. The rate with the
    lowest final validation loss is used for all seeds.
    """

    variants: tuple[Variant, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    learning_rates: tuple[float, ...] = (1e-4,)
    tuning_seed: int = -1
    """The seed of the tuning runs, which is not reported; -1: the first of `seeds`, whose best
    tuning run is then also reported."""
    equal_flops: bool = False
    """Train each variant for as many steps as cost the training FLOPs of the first variant. False:
    train all for `pretrain.train.steps`."""
    pretrain: Config = field(default_factory=Config)
    """The settings that all variants share. Its encoding and learning rate are not used; its seed
    is used only for tokenizer and data."""
    downstream: DownstreamConfig = field(default_factory=DownstreamConfig)
    measure: MeasureConfig = field(default_factory=MeasureConfig)

    def __post_init__(self) -> None:
        check_fields(self, "config")
        _require_some([variant.name for variant in self.variants], "config.variants")
        tuned = [variant.name for variant in self.variants if not variant.tuned_as]
        for variant in self.variants:
            if variant.tuned_as:
                one_of(variant.tuned_as, tuned, f"tuned_as of variant {variant.name}")
        _require_some(self.seeds, "config.seeds")
        _require_some(self.learning_rates, "config.learning_rates")
        if self.tuning_seed < -1 or (self.tunes_held_out and self.tuning_seed in self.seeds):
            raise UserError(
                f"config.tuning_seed={self.tuning_seed} must be a seed that is not among "
                f"config.seeds={','.join(map(str, self.seeds))}, or -1 for the first of these"
            )
        probed = self.measure.probe_task
        if probed and probed not in self.downstream.tasks:
            raise UserError(
                f"measure.probe_task={probed!r} is not among downstream.tasks="
                f"{','.join(self.downstream.tasks)}; add it to them"
            )
        if self.measure.probe_file and not probed:
            raise UserError(
                f"measure.probe_file={self.measure.probe_file!r} needs measure.probe_task; set "
                "both or neither"
            )
        if self.pretrain.data.reader == "live":
            raise UserError(
                "pretrain.data.reader='live': the runs of a study share prepared data; leave it out"
            )
        words = self.pretrain.model.vocab_size - len(SPECIAL_TOKENS)
        if self.measure.words > words:
            raise UserError(
                f"measure.words={self.measure.words} is more than the {words} ordinary tokens "
                f"of pretrain.model.vocab_size={self.pretrain.model.vocab_size}"
            )
        if self.measure.length + 1 > self.pretrain.data.length:
            raise UserError(
                f"measure.length={self.measure.length} positions and [CLS] do not fit into "
                f"pretrain.data.length={self.pretrain.data.length}"
            )
        # Report a wrong setting now, not when its run starts.
        for variant in self.variants:
            run = run_config(self, variant, self.seeds[0], self.learning_rates[0])
            encodings(run.model)
            longest = run.model.position.max_length
            if self.downstream.tasks and self.downstream.finetune.length > longest:
                raise UserError(
                    f"downstream.finetune.length={self.downstream.finetune.length} is longer than "
                    f"position.max_length={longest} of variant {variant.name}"
                )
        for seed in {*self.seeds, self.seed_of_tuning}:
            for rate in self.learning_rates:
                run_config(self, self.variants[0], seed, rate)

    @property
    def tunes_held_out(self) -> bool:
        """Whether learning rates are chosen on a seed that is not reported."""
        return self.tuning_seed != -1

    @property
    def seed_of_tuning(self) -> int:
        return self.tuning_seed if self.tunes_held_out else self.seeds[0]

    @property
    def objectives(self) -> list[str]:
        """The objectives of the variants, beginning with that of the first variant."""
        shared = self.pretrain.objective.name
        names = (str(v.settings.get("objective.name", shared)) for v in self.variants)
        return list(dict.fromkeys(names))

    def variant(self, name: str) -> Variant:
        return next(variant for variant in self.variants if variant.name == name)


def run_config(study: AblationConfig, variant: Variant, seed: int, learning_rate: float) -> Config:
    """The pre-training config of one run."""
    config = _variant_config(study.pretrain, variant)
    if study.equal_flops:
        goal = training_flops(_variant_config(study.pretrain, study.variants[0]))
        steps = round(config.train.steps * goal / training_flops(config))
        config = replace(config, train=replace(config.train, steps=steps))
    optimizer = replace(config.optimizer, peak_learning_rate=learning_rate)
    return replace(config, seed=seed, optimizer=optimizer)


def _variant_config(shared: Config, variant: Variant) -> Config:
    position = with_encoding(shared.model.position, variant.encoding)
    config = replace(shared, model=replace(shared.model, position=position))
    return _with_settings(config, variant) if variant.settings else config


@cache
def training_flops(config: Config) -> float:
    """The model FLOPs of a whole pre-training run, summed over all its networks."""
    tokens = config.train.steps * config.train.batch_size * config.data.length
    return make_objective(config).training_flops_per_token() * tokens


def _with_settings(config: Config, variant: Variant) -> Config:
    values = to_config_dict(config)
    for setting, value in variant.settings.items():
        *sections, name = setting.split(".")
        at = values
        for section in sections:
            at = at.get(section, ConfigDict())
        is_option = sections[-2:] == ["position", "options"]  # the encoding checks its name
        if name not in at and not is_option:
            raise UserError(f"variant {variant.name}: unknown setting {setting!r}")
        at[name] = value
    return from_config_dict(values)


def ablation_config(values: ConfigDict) -> AblationConfig:
    """The validated config of a study; tasks may be one string, `builtin_nli,builtin_sst`."""
    require_kind(values, STUDY)
    sections = values.to_dict()
    downstream = sections.setdefault("downstream", {})
    downstream["tasks"] = [
        name.strip()
        for text in downstream.get("tasks", ())
        for name in str(text).split(",")
        if name
    ]
    return from_mapping(
        AblationConfig,
        {
            **sections,
            "variants": tuple(map(_variant, values.get("variants", ()))),
            "pretrain": from_config_dict(values.get("pretrain", ConfigDict())),
        },
        "config",
    )


def _variant(values: Variant | Mapping[str, Any]) -> Variant:
    if isinstance(values, Variant):
        return values
    return from_mapping(Variant, values, "config.variants")


def study(config: AblationConfig) -> ConfigDict:
    """A study as a config file returns it, open to overrides."""
    values = asdict(config)
    return ConfigDict({**values, "pretrain": to_config_dict(config.pretrain)})


def _require_different(values: Sequence[Any], setting: str) -> None:
    if len(set(values)) < len(values):
        raise UserError(f"{setting}={','.join(map(str, values))} has a duplicate")


def _require_some(values: Sequence[Any], setting: str) -> None:
    if not values:
        raise UserError(f"{setting} is empty; name at least one")
    _require_different(values, setting)
