"""Every config file: its commands exist, its settings are complete, its model can be built."""

import re
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
from flax import nnx
from ml_collections import ConfigDict

from tupe_jax import cli
from tupe_jax.ablation.config import AblationConfig, Variant, ablation_config, study
from tupe_jax.config.loading import (
    RECIPE_FOLDER,
    from_config_dict,
    known_configs,
    load_config,
    recipe,
    to_config_dict,
)
from tupe_jax.config.schema import ENCODING, POSITION_VARIANTS, Config
from tupe_jax.config.validation import from_mapping
from tupe_jax.finetune.config import FinetuneConfig, GlueConfig
from tupe_jax.finetune.run import finetuned_model_config
from tupe_jax.objectives.registry import make_objective
from tupe_jax.run.resume_checks import flattened
from tupe_jax.utils.errors import UserError

CONFIGS = known_configs()
FINETUNING = {"finetune": FinetuneConfig, "glue": GlueConfig}
ABLATIONS = [name for name in CONFIGS if name.startswith("ablations/")]
PRETRAINING = [name for name in CONFIGS if name not in (*FINETUNING, *ABLATIONS)]


RECIPES = sorted(file.stem for file in RECIPE_FOLDER.glob("*.py"))
STUDY_RECIPES = sorted(file.stem for file in (RECIPE_FOLDER / "studies").glob("*.py"))
LARGE_AND_BASE = ("tupe_large", "tupe_r")


def names(config):
    return {name for name, _ in flattened(config.to_dict())}


def forms(name):
    return [name, f"{name}:modern", f"{name}:tiny"]


@pytest.mark.parametrize("spec", [spec for name in PRETRAINING for spec in forms(name)])
def test_every_form_makes_a_model(spec):
    config = from_config_dict(load_config(spec))
    nnx.eval_shape(lambda: make_objective(config).build(nnx.Rngs(0)))
    assert config.data.length <= config.model.position.max_length


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_form_of_a_study_is_a_config(name):
    for form in ("tiny", "paper"):
        config = ablation_config(load_config(f"{name}:{form}"))
        assert (config.pretrain.train.steps == 10**6) == (form == "paper")


@pytest.mark.parametrize("form", ["paper", "quick"])
@pytest.mark.parametrize("name", FINETUNING)
def test_every_form_of_fine_tuning_is_a_config(name, form):
    config = from_mapping(FINETUNING[name], load_config(f"{name}:{form}"), "config")
    assert (config == FINETUNING[name]()) == (form == "paper")


@pytest.mark.parametrize("name", CONFIGS)
def test_the_header_gives_commands_that_work(name):
    text = CONFIGS[name].read_text()
    command = name if name in FINETUNING else "ablate" if name in ABLATIONS else "pretrain"
    commands = re.findall(rf"^  tupe {command}(.*)$", text, re.MULTILINE)
    forms_shown = re.findall(r"^(\w+)  +\w", text.split('"""')[1], re.MULTILINE)
    assert len(commands) == (len(forms_shown) or 1)
    for spec in re.findall(r"--config=(\S+)", text):
        assert spec.partition(":")[0] == name
        load_config(spec)


@pytest.mark.parametrize("form", RECIPES)
def test_a_recipe_has_every_setting_of_a_pre_training(form):
    assert names(recipe(form)) == names(to_config_dict(Config()))


@pytest.mark.parametrize("form", STUDY_RECIPES)
def test_a_recipe_has_every_setting_of_a_study(form):
    config = recipe(f"studies/{form}")
    config.variants = ()
    assert names(config) == names(study(AblationConfig((Variant("a", "bert_a"),))))


@pytest.mark.parametrize("name", FINETUNING)
def test_a_config_of_fine_tuning_has_every_setting(name):
    assert names(load_config(name)) == names(ConfigDict(asdict(FINETUNING[name]())))


@pytest.mark.parametrize("form", RECIPES)
@pytest.mark.parametrize("name", POSITION_VARIANTS)
def test_a_config_of_an_encoding_is_a_recipe_with_that_encoding(name, form):
    config, without = load_config(f"{name}:{form}").to_dict(), recipe(form).to_dict()
    for setting in ENCODING:
        assert config["position"][setting] == getattr(POSITION_VARIANTS[name], setting)
        without["position"][setting] = config["position"][setting]
    assert config == without


@pytest.mark.parametrize("form", RECIPES)
def test_the_large_model_is_larger_in_every_form(form):
    large, base = (from_config_dict(load_config(f"{n}:{form}")).model for n in LARGE_AND_BASE)
    assert large.num_layers > base.num_layers
    assert large.hidden_size > base.hidden_size
    assert large.head_size == base.head_size
    same = ("num_layers", "hidden_size", "num_heads", "mlp_size")
    assert replace(large, **{name: getattr(base, name) for name in same}) == base


def test_a_recipe_is_a_new_copy():
    recipe("tiny").train.steps = 1
    assert recipe("tiny").train.steps == 900


def test_a_recipe_is_no_config():
    with pytest.raises(UserError, match="recipes/tiny"):
        load_config("recipes/tiny")


def test_the_paper_recipe_is_the_papers():
    config = from_config_dict(load_config("tupe_r"))
    assert (config.train.steps, config.train.batch_size, config.data.length) == (10**6, 256, 512)
    optimizer = config.optimizer
    assert (optimizer.name, optimizer.peak_learning_rate, optimizer.warmup) == (
        "adam_released",
        1e-4,
        "10000",
    )
    assert (optimizer.beta1, optimizer.beta2, optimizer.eps) == (0.9, 0.999, 1e-6)
    assert (optimizer.weight_decay, optimizer.clip_norm, optimizer.schedule) == (
        0.01,
        1.0,
        "linear",
    )
    assert (config.model.vocab_size, config.model.dropout, config.objective.mask_rate) == (
        32768,
        0.1,
        0.15,
    )
    assert not config.model.pre_layer_norm


def test_locality_symmetry_has_the_second_papers_settings():
    config = from_config_dict(load_config("locality_symmetry"))
    assert (config.objective.name, config.data.packing) == ("masked_lm_nsp", "pairs")
    assert (config.model.vocab_size, config.model.segments) == (30_522, 2)
    assert (config.train.batch_size, config.optimizer.warmup) == (96, "10%")
    assert config.optimizer.peak_learning_rate == 1e-4


def rules(form):
    config = from_config_dict(load_config(f"tupe_r:{form}"))
    return config.objective.mask_rule, config.data.packing, config.optimizer.warmup_from_zero


def test_only_the_paper_recipe_has_the_official_rules():
    assert rules("paper") == ("released", "sentences", True)
    assert rules("modern") == rules("tiny") == ("ordinary", "stream", False)


@pytest.mark.parametrize("form", ["modern", "tiny"])
def test_the_papers_fine_tuning_has_dropout_whatever_the_model_had(form):
    pretrained = from_config_dict(load_config(f"tupe_r:{form}")).model
    assert (pretrained.dropout, pretrained.attention_dropout) == (0, 0)
    protocols = (
        from_mapping(FinetuneConfig, load_config("finetune"), "config"),
        from_mapping(GlueConfig, load_config("glue"), "config").finetune,
    )
    for protocol in protocols:
        model = finetuned_model_config(protocol, pretrained)
        assert (model.dropout, model.attention_dropout) == (0.1, 0.1)
    quick = from_mapping(FinetuneConfig, load_config("finetune:quick"), "config")
    assert finetuned_model_config(quick, pretrained) == pretrained


def test_overrides_and_their_errors():
    config = load_config(
        "tupe_r:tiny", ["--config.train.steps=7", "--config.position.relative=rope"]
    )
    assert (config.train.steps, config.position.relative) == (7, "rope")
    repeated = ["--config.seeds=1,2", "--config.seeds=3"]
    assert load_config("ablations/positions", repeated).seeds == (3,)
    for override, words in [
        ("--config.train.stepz=5", "config.train .*'stepz'.*'steps'"),
        ("--config.train.steps=many", "config.train.steps=many"),
        ("--config.trane.steps=5", "'trane'.*'train'"),
        ("--config.model.dtype=int8", "config.model.dtype='int8'"),
    ]:
        with pytest.raises(UserError, match=words):
            from_config_dict(load_config("tupe_r:tiny", [override]))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("tupe_x", "'tupe_x'.*'tupe_"),
        ("tupe_r:tinny", "'tiny'"),
        ("tests/config/test_configs.py", "get_config"),
    ],
)
def test_unknown_configs(spec, words):
    with pytest.raises(UserError, match=words):
        load_config(spec)


@pytest.mark.parametrize(
    ("command", "spec", "words"),
    [
        (
            "ablate",
            "quickstart",
            "pre-training config.* study config, .*=ablations/paper_table",
        ),
        ("ablate", "finetune", "fine-tuning config.* study config"),
        ("ablate", "{empty}", "config.variants"),
        ("glue --checkpoint=m", "finetune", "fine-tuning config.* GLUE config, .*=glue"),
        ("finetune --checkpoint=m --task=t", "glue", "GLUE config.* fine-tuning config"),
        ("pretrain", "finetune", "fine-tuning config.* pre-training config, .*=tupe_r"),
        ("bench step", "ablations/positions", "study config.* pre-training config"),
    ],
)
def test_a_config_for_another_command_is_refused(command, spec, words, tmp_path, capsys):
    empty = tmp_path / "empty.py"
    empty.write_text("from ml_collections import ConfigDict as get_config\n")
    code = cli.main([*command.split(), f"--config={spec.format(empty=empty)}"])
    assert code == cli.USER_ERROR_EXIT_CODE
    error = capsys.readouterr().err
    assert re.search(words, error)
    assert error.count("\n") == 1


def test_a_wrong_setting_on_the_command_line_is_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "tupe_jax", "pretrain", "--config.train.stepz=5"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == cli.USER_ERROR_EXIT_CODE
    assert done.stderr.count("\n") == 1
    assert "'steps'" in done.stderr


def test_an_unwritable_work_directory(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert cli.main(["pretrain", f"--workdir={tmp_path}/file/run"]) == cli.USER_ERROR_EXIT_CODE
    assert "choose another --workdir" in capsys.readouterr().err
