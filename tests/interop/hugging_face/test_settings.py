"""A `config.json` becomes a `ModelConfig`, or a one-line error."""

import pytest

from tests.interop.hugging_face import public_encoders as public
from tupe_jax.config.schema import ModelConfig
from tupe_jax.interop.hugging_face.common_settings import CheckpointContents
from tupe_jax.interop.hugging_face.json_settings import JsonSettings
from tupe_jax.interop.hugging_face.settings import CONFIGS, model_config
from tupe_jax.utils.errors import UserError

CONTENTS = CheckpointContents(pooler=True, masked_word_head=True, sep_id=3)
ODD = [0, -1, -7, 1.5, "", "many", True, None, [], [1], {}, {"a": 1}, float("nan"), float("inf")]
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
SIZES_OF_DISTILBERT = ("vocab_size", "dim", "n_layers", "n_heads")
SIZES_OF_XLNET = ("vocab_size", "d_model", "n_layer", "n_head")


def config_of(kind, changes):
    """`changes` without a value are of settings that the file does not have."""
    _, config = public.MODELS[kind]
    values = {**config.to_dict(), **changes}
    known = {name: value for name, value in values.items() if value is not ...}
    return model_config(kind, JsonSettings(known, "config.json"), CONTENTS)


def complaint_about(kind, changes):
    try:
        assert isinstance(config_of(kind, changes), ModelConfig)
    except UserError as error:
        return str(error)
    return None


@pytest.mark.parametrize("kind", CONFIGS)
def test_any_wrong_value_of_any_setting_is_a_one_line_error(kind):
    names = public.MODELS[kind][1].to_dict()
    found = [complaint_about(kind, {name: value}) for name in names for value in (*ODD, ...)]
    complaints = [text for text in found if text is not None]
    assert len(complaints) > 100
    for text in complaints:
        assert text.startswith("config.json")
        assert "\n" not in text


@pytest.mark.parametrize("value", [0, -1, 1.5, "many", True, None, ...])
@pytest.mark.parametrize("kind", CONFIGS)
def test_wrong_sizes_are_refused_by_the_name_in_config_json(kind, value):
    others = {"xlnet": SIZES_OF_XLNET, "distilbert": SIZES_OF_DISTILBERT}
    for name in others.get(kind, SIZES):
        with pytest.raises(UserError, match=rf"^config\.json.*{name}"):
            config_of(kind, {name: value})


@pytest.mark.parametrize(("name", "same"), [("embedding_size", 32), ("attention_head_size", 8)])
def test_a_derived_size_of_deberta_may_be_set_only_to_its_value(name, same):
    assert config_of("deberta-v2", {name: same}) == config_of("deberta-v2", {name: ...})
    with pytest.raises(UserError, match=f"{name}=16 .*{same}"):
        config_of("deberta-v2", {name: 16})


def test_inconsistent_sizes_are_named_with_their_file():
    with pytest.raises(UserError, match=r"^config\.json: model\.hidden_size=32"):
        config_of("bert", {"num_attention_heads": 5})
