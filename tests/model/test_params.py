"""A model is its config and its parameters by path."""

import numpy as np
import pytest

from tests.model.helpers import small_config, spread_model
from tupe_jax.model.params import (
    arrays_of,
    classification_heads_in,
    classification_heads_of,
    model_from,
    param_shapes,
)
from tupe_jax.utils.errors import UserError

HEADS = {"mnli": 3, "cola": 2}


def test_config_and_parameters_are_the_model():
    model = spread_model(small_config(), heads=HEADS)
    params = arrays_of(model)
    assert param_shapes(model.config, HEADS) == {p: array.shape for p, array in params.items()}
    assert classification_heads_in(params) == classification_heads_of(model) == HEADS
    again = arrays_of(model_from(model.config, params))
    assert again.keys() == params.keys()
    for path, array in params.items():
        np.testing.assert_array_equal(again[path], array)


def test_a_missing_array_is_named():
    model = spread_model(small_config())
    params = {p: a for p, a in arrays_of(model).items() if p != ("masked_word_head", "bias")}
    with pytest.raises(UserError, match=r"masked_word_head\.bias"):
        model_from(model.config, params)
