"""Options that an encoding declares: set in configs, varied in studies, kept with a model."""

import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import tupe_jax
from tests.ablation.studies import small_study
from tests.model.helpers import small_config, with_position
from tupe_jax import cli
from tupe_jax.ablation.config import Variant
from tupe_jax.ablation.results import run_settings
from tupe_jax.ablation.work_plan import RunKey
from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.config.schema import PositionConfig, position_name
from tupe_jax.model.positions import (
    RELATIVE,
    encodings,
    relative_encoding,
)
from tupe_jax.run.resume_checks import check_unchanged
from tupe_jax.utils.errors import USER_ERROR_EXIT_CODE, UserError

FILE = '''
import jax.numpy as jnp

from tupe_jax.config.loading import recipe
from tupe_jax.model.positions import Encoding, relative_encoding


@relative_encoding("band")
def band(config, width: int = 4, slope: float = 1.0):
    """-slope * max(|j - i| - width, 0)."""

    def distance_bias(weights, distance):
        beyond = jnp.maximum(jnp.abs(distance) - width, 0)
        return jnp.broadcast_to(-slope * beyond, (config.num_heads, distance.size))

    return Encoding(distance_bias=distance_bias)


def get_config():
    config = recipe("tiny")
    config.position.absolute = "untied"
    config.position.relative = "band"
    return config
'''
TINY_RUN = {
    "data.task": "builtin:400",
    "data.length": 16,
    "model.vocab_size": 300,
    "model.hidden_size": 16,
    "model.mlp_size": 32,
    "model.num_layers": 1,
    "train.batch_size": 8,
    "train.steps": 3,
    "eval.rows": 16,
}


@pytest.fixture(autouse=True)
def registry():
    """The encoding that a test registers is forgotten after it."""
    yield
    RELATIVE.pop("band", None)


@pytest.fixture
def config_file(tmp_path):
    file = tmp_path / "my_encoding.py"
    file.write_text(FILE)
    return file


def read(config_file, **options):
    flags = [f"--config.position.options.{name}={value}" for name, value in options.items()]
    return from_config_dict(load_config(str(config_file), flags)).model


def distance_bias(config):
    return encodings(config)["relative"].distance_bias({}, jnp.arange(10))[0]


def test_an_option_has_its_default_or_what_a_flag_sets(config_file):
    config = read(config_file)
    np.testing.assert_array_equal(distance_bias(config), -np.maximum(np.arange(10) - 4, 0))
    config = with_position(config, options={"width": 2, "slope": 0.5})
    np.testing.assert_array_equal(distance_bias(config), -np.maximum(np.arange(10) - 2, 0) / 2)


def test_flags_set_options_that_the_config_file_does_not_list(config_file):
    options = read(config_file, width=8, slope=2).position.options
    assert options == {"width": 8, "slope": 2}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"widht": 8},
            ["position.options.widht", "'width'", "'band' has the options width, slope"],
        ),
        ({"width": "wide"}, ["position.options.width='wide'", "int"]),
        ({"width": 1.5}, ["position.options.width=1.5", "int"]),
        ({"slope": True}, ["position.options.slope=True", "float"]),
    ],
)
def test_a_wrong_option_is_refused_by_name(config_file, options, words):
    config = read(config_file, **options)
    with pytest.raises(UserError) as error:
        encodings(config)
    assert all(word in str(error.value) for word in words)
    assert "\n" not in str(error.value)


def test_a_shipped_encoding_refuses_options_that_it_does_not_declare():
    config = with_position(small_config("tupe_r"), options={"width": 8})
    with pytest.raises(UserError, match=r"position\.options\.width.*'t5'.*t5_gain"):
        encodings(config)


@pytest.mark.parametrize("make", [lambda config, width: None, lambda config, width=None: None])
def test_an_option_needs_a_default_of_a_plain_type(make):
    with pytest.raises(UserError, match=r"'width'.*'band'"):
        relative_encoding("band")(make)


def test_configs_with_other_options_are_other_configs(config_file):
    one, other = read(config_file), with_position(small_config(), options={"width": 8})
    assert one != with_position(one, options={"width": 8})
    assert other == with_position(small_config(), options={"width": 8})
    assert hash(other) == hash(with_position(small_config(), options={"width": 8}))


def test_options_are_part_of_the_name_in_tables():
    position = PositionConfig("untied", "band", options={"width": 8})
    assert position_name(position) == "untied + band + untie_cls, width=8"


def test_a_study_varies_an_option(config_file):
    load_config(str(config_file))
    band = {"position.relative": "band"}
    variants = (
        Variant("narrow", "t5", band),
        Variant("wide", "t5", {**band, "position.options.width": 8}),
    )
    study = replace(small_study(), variants=variants)
    narrow, wide = (run_settings(study, RunKey(v.name, 0, 1e-3)) for v in variants)
    assert wide["pretrain"]["model"]["position"]["options"] == {"width": 8}
    with pytest.raises(UserError, match=r"position\.options\.width"):
        check_unchanged(narrow, wide)
    with pytest.raises(UserError, match=r"position\.options\.height"):
        replace(study, variants=(Variant("high", "t5", {**band, "position.options.height": 8}),))


def test_options_of_a_study_belong_to_its_variants(tmp_path, capsys):
    flags = ["--config=ablations/paper_table", f"--workdir={tmp_path}"]
    option = "--config.pretrain.position.options.width"
    assert cli.main(["ablate", *flags, f"{option}=8"]) == USER_ERROR_EXIT_CODE
    assert option in capsys.readouterr().err


@pytest.mark.slow
def test_options_survive_pre_training_export_and_loading(config_file, tmp_path):
    run, out = tmp_path / "run", tmp_path / "exported"
    flags = [f"--config.{name}={value}" for name, value in TINY_RUN.items()]
    flags += [f"--config={config_file}", "--config.position.options.width=2"]
    assert cli.main(["pretrain", f"--workdir={run}", *flags]) == 0
    assert cli.main(["export", str(run), str(out)]) == 0
    for file in (run / "config.json", out / "config.json"):
        assert json.loads(file.read_text())["model"]["position"]["options"] == {"width": 2}
    trained, exported = tupe_jax.load(run), tupe_jax.load(out)
    assert trained.config.position.options == exported.config.position.options == {"width": 2}
    np.testing.assert_array_equal(trained.position_bias(), exported.position_bias())
    assert "--config.position.options.width=2" in (out / "README.md").read_text()


def test_a_config_without_options_is_one_with_none_set(config_file):
    config = read(config_file)
    saved = {"model": {"position": {"relative": "band"}}}
    now = {"model": {"position": {"relative": "band", "options": dict(config.position.options)}}}
    check_unchanged(saved, now)
