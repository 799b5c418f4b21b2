"""A second objective, defined here only, trained by the real loop.

It has all that masked LM has not: two terms, a module of two models, a feature besides the tokens
and noise of its own. A small generator is a masked LM; a discriminator predicts from [CLS] whether
an example is marked, which the token after [CLS] decides.
"""

import dataclasses
import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh

from tests.training import runs
from tupe_jax.aot.compile import CompiledStep, CompileResult
from tupe_jax.aot.targets import parse_target
from tupe_jax.checkpointing.manager import load_for_use
from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.config.schema import Config
from tupe_jax.distributed.sharding_rules import MESH_AXES
from tupe_jax.inference.loading import load
from tupe_jax.model.heads import MaskedLM
from tupe_jax.objectives import registry
from tupe_jax.objectives.base import Exported, Term, metrics, total_loss
from tupe_jax.objectives.masked_lm import MaskedLMObjective, masked_lm_term
from tupe_jax.objectives.registry import make_objective
from tupe_jax.training import loop
from tupe_jax.training.dataset import Dataset
from tupe_jax.training.monitoring.position_bias import PREFIX
from tupe_jax.training.summary import summarise
from tupe_jax.utils.errors import UserError

MASKED, MARKED = "masked_lm", "marked"


class Pair(nnx.Module):
    """Two models, of which one is exported."""

    def __init__(self, config, *, rngs):
        small = dataclasses.replace(config, hidden_size=16, mlp_size=16)
        whole = dataclasses.replace(config, masked_word_head=False)
        self.generator = MaskedLM(small, rngs=rngs)
        self.discriminator = MaskedLM(whole, rngs=rngs, classification_heads={MARKED: 2})


@dataclass(frozen=True)
class PairObjective:
    config: Config
    starts_word_V: object = None

    coefficients: ClassVar = {MASKED: 1.0, MARKED: 50.0}
    loss_unit: ClassVar = "nats per masked token and example"

    @property
    def masked_lm(self):
        return MaskedLMObjective(self.config, self.starts_word_V)

    @property
    def features(self):
        return {**self.masked_lm.features, "is_marked": jax.ShapeDtypeStruct((), np.int32)}

    def build(self, rngs):
        return Pair(self.config.model, rngs=rngs)

    def prepare(self, batch, key):
        masked_key, noise_key = jax.random.split(key)
        return {
            "masked": self.masked_lm.prepare(batch, masked_key),
            "tokens": batch["tokens"],
            "is_marked": batch["is_marked"],
            "noise": jax.random.normal(noise_key, batch["is_marked"].shape),
        }

    def is_example(self, inputs):
        return (inputs["tokens"][:, 0] != self.config.model.pad_id).astype(jnp.float32)

    def weights(self, inputs):
        return {
            **self.masked_lm.weights(inputs["masked"]),
            MARKED: self.is_example(inputs).sum(),
        }

    def terms(self, module, inputs, key):
        keys = (None, None) if key is None else jax.random.split(key)
        outputs = module.discriminator.classify(inputs["tokens"], MARKED, key=keys[1])
        outputs += 0.01 * inputs["noise"][:, None]
        loss = -jnp.take_along_axis(
            jax.nn.log_softmax(outputs), inputs["is_marked"][:, None], axis=1
        )[:, 0]
        correct = outputs.argmax(-1) == inputs["is_marked"]
        weight = self.is_example(inputs)
        return {
            MASKED: masked_lm_term(module.generator, inputs["masked"], keys[0]),
            MARKED: Term((loss * weight).sum(), {"accuracy": (correct * weight).sum()}),
        }

    def to_export(self, module):
        return Exported(module.discriminator)

    def networks(self):
        return [self.config.model] * 2

    def training_flops_per_token(self):
        return 2 * self.masked_lm.training_flops_per_token()

    def baseline(self, counts_V, inputs):
        marked = np.concatenate([some["is_marked"] for some in inputs])
        return {"marked_accuracy": float(max(marked.mean(), 1 - marked.mean()))}


class MarkedReader:
    """A reader whose examples have one more feature."""

    def __init__(self, reader):
        self._reader = reader
        self.state, self.restore = reader.state, reader.restore

    def next(self):
        return marked(self._reader.next())


def marked(examples):
    return {**examples, "is_marked": examples["tokens"][:, 1] % 2}


@pytest.fixture(scope="module", autouse=True)
def pair_objective():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.OBJECTIVES, "pair", PairObjective)
        yield


@contextmanager
def marked_data():
    """Let runs read data that has the feature `is_marked`."""
    open_dataset = loop.open_dataset

    def open_marked(*arguments) -> Dataset:
        found = open_dataset(*arguments)
        reader = MarkedReader(found.train)
        return dataclasses.replace(found, train=reader, validation=marked(found.validation))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "open_dataset", open_marked)
        yield


SETTINGS = {
    "objective.name": "pair",
    "train.accumulate": 2,
    "train.ema_decay": 0.9,
    "train.steps": 6,
    "checkpoint.every": 2,
    "eval.every": 3,
}


def arguments_of(corpus, **changes):
    return runs.settings(corpus, **SETTINGS | changes)


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """A run to its end: its arguments and work directory."""
    workdir = tmp_path_factory.mktemp("pair")
    arguments = arguments_of(corpus)
    with marked_data():
        return arguments, workdir, runs.run_here(arguments, workdir)


@pytest.mark.slow
def test_training_and_evaluation_write_the_metrics_of_each_term(finished):
    _, workdir, run = finished
    assert run.finished
    lines = runs.numbers(workdir)
    names = {"loss", *(f"{t}_{m}" for t in (MASKED, MARKED) for m in ("loss", "accuracy"))}
    training = [line for line in lines if "loss" in line]
    validation = [line for line in lines if "valid_loss" in line]
    assert [line["step"] for line in training] == list(range(1, 7))
    assert [line["step"] for line in validation] == [3, 6]
    assert all(names <= line.keys() for line in training)
    for line in validation:
        written = {name for name in line if not name.startswith(PREFIX)}
        assert written == {f"valid_{name}" for name in names} | {"step"}
    for line in training:
        expected = line["masked_lm_loss"] + 50 * line["marked_loss"]
        assert line["loss"] == pytest.approx(expected, rel=1e-6)


def test_an_estimate_counts_what_its_own_models_recompute():
    """Two models need twice the FLOPs, those that `remat` repeats included."""

    def seconds(objective):
        settings = [f"--config.objective.name={objective}", "--config.model.remat=full"]
        target = parse_target("v5e:1x1")
        mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1, 1), MESH_AXES)
        step = CompiledStep({"all": 1}, [], 1.0)
        config = from_config_dict(load_config("tupe_r:tiny", settings))
        return CompileResult(config, target, mesh, step).estimate(0.5).step_seconds

    assert seconds("pair") == pytest.approx(2 * seconds("masked_lm"))


@pytest.mark.slow
def test_a_stopped_run_resumes_exactly(finished, tmp_path):
    arguments, workdir, _ = finished
    with marked_data():
        assert not runs.run_here(arguments, tmp_path, runs.StopAfter(5)).finished
        assert 0 < runs.run_here(arguments, tmp_path).resumed_from < 6
    runs.assert_same_run(arguments, workdir, tmp_path)
    params = runs.final_state(arguments, tmp_path).state.params
    assert set(params) == {"generator", "discriminator"}


@pytest.mark.slow
def test_the_summary_shows_its_metrics_and_no_masks_that_the_model_cannot_fill(finished):
    _, workdir, run = finished
    text = summarise(run, workdir)
    assert "marked accuracy" in text
    assert PairObjective.loss_unit in text
    assert "[MASK]" not in text


@pytest.mark.slow
def test_its_checkpoint_names_it_and_loads_as_what_it_exports(finished):
    _, workdir, run = finished
    metadata, _, _ = load_for_use(workdir)
    assert metadata.config["objective"]["name"] == "pair"
    loaded = load(workdir)
    assert loaded.config == run.exported.model.config
    assert not loaded.config.masked_word_head
    assert loaded.classification_heads == {MARKED: 2}
    np.testing.assert_array_equal(
        loaded.module.encoder.word_embedding[...], run.exported.model.encoder.word_embedding[...]
    )


def test_a_checkpoint_without_the_arrays_of_its_objective_is_refused(corpus):
    config = runs.config_of(arguments_of(corpus))
    with pytest.raises(UserError, match=r"objective\.name=pair"):
        registry.exported_models(config, {})


def test_data_without_its_feature_is_refused(corpus, tmp_path):
    with pytest.raises(UserError, match="is_marked"):
        runs.run_here(arguments_of(corpus), tmp_path)


@pytest.mark.slow
def test_a_run_does_not_resume_with_another_objective(finished):
    arguments, workdir, _ = finished
    with pytest.raises(UserError, match=r"objective\.name"):
        runs.run_here([*arguments, "--config.objective.name=masked_lm"], workdir)


def test_an_unknown_objective_is_refused(corpus, tmp_path):
    with pytest.raises(UserError, match=r"objective\.name 'masked_ml'"):
        runs.run_here(arguments_of(corpus, **{"objective.name": "masked_ml"}), tmp_path)


@pytest.mark.slow
def test_a_run_begun_before_objectives_had_names_is_masked_lm(corpus, tmp_path):
    arguments = arguments_of(corpus, **{"objective.name": "masked_lm"})
    assert not runs.run_here(arguments, tmp_path, runs.StopAfter(3)).finished
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    del config["objective"]["name"]
    file.write_text(json.dumps(config))
    assert runs.run_here(arguments, tmp_path).finished


def test_weights_are_those_of_the_whole_batch():
    objective = PairObjective(Config())
    halves = [
        {MASKED: Term(jnp.float32(loss), {}), MARKED: Term(jnp.float32(0), {})} for loss in (3, 6)
    ]
    weights = {MASKED: jnp.float32(4), MARKED: jnp.float32(2)}
    whole = jax.tree.map(jnp.add, *halves)
    assert sum(total_loss(objective, half, weights) for half in halves) == 9 / 4
    assert metrics(objective, whole, weights)["masked_lm_loss"] == 9 / 4
    masked_lm = make_objective(Config())
    only = {MASKED: Term(jnp.float32(8), {"accuracy": jnp.float32(1)})}
    assert metrics(masked_lm, only, weights) == {"loss": 2, "accuracy": 0.25}
