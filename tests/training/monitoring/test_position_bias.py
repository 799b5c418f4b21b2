"""The sizes of position biases in a line of metrics, by definition."""

import numpy as np
import pytest
from flax import nnx

from tests.model import numpy_reference as reference
from tests.model.helpers import small_config, spread_model, with_position
from tupe_jax.config.schema import Config, DataConfig, MeshConfig
from tupe_jax.distributed.mesh import make_mesh
from tupe_jax.model.params import arrays_of
from tupe_jax.objectives.registry import make_objective
from tupe_jax.training.monitoring import position_bias
from tupe_jax.training.monitoring.position_bias import PositionBiasSizes, sizes_in

LENGTH = 13


def sizes(model_config):
    model = spread_model(model_config)
    config = Config(model=model_config, data=DataConfig(length=LENGTH))
    measure = PositionBiasSizes(
        config, nnx.graphdef(model), make_objective(config), make_mesh(MeshConfig())
    )
    return model, sizes_in({"step": 3, "valid_loss": 2.0, **measure(nnx.state(model, nnx.Param))})


def size_by_definition(bias_HxSxS):
    """Distances of the logits of a query to their mean, without [CLS]."""
    inner = bias_HxSxS[:, 1:, 1:]
    return np.sqrt(np.square(inner - inner.mean(2, keepdims=True)).mean((1, 2)))


def test_each_head_of_each_part_has_the_size_of_its_bias():
    config = with_position(small_config("tupe_r"), options={"t5_gain": 2.0})
    model, found = sizes(config)
    weights = reference.nested(arrays_of(model))["encoder"]["positions"]
    relative = 2 * reference.t5_bias(weights["relative"]["table"], LENGTH, 8, 6)
    absolute = reference.untied_bias(weights["absolute"], LENGTH) / np.sqrt(2 * config.head_size)
    assert found.keys() == {"absolute", "relative"}
    np.testing.assert_allclose(found["relative"], size_by_definition(relative), rtol=1e-4)
    np.testing.assert_allclose(found["absolute"], size_by_definition(absolute), rtol=1e-4)


def test_layers_with_their_own_biases_are_averaged():
    config = small_config("attenuated_layer_head")
    model, found = sizes(config)
    layers = arrays_of(model)["encoder", "layers", "attention", "positions", "relative", "table"]
    biases = [reference.attenuated_table_bias(table, 4, LENGTH, 20) for table in layers]
    expected = np.sqrt(np.mean([np.square(size_by_definition(bias)) for bias in biases], 0))
    np.testing.assert_allclose(found["relative"], expected, rtol=1e-4)


@pytest.mark.parametrize("variant", ["none", "bert_a", "rope"])
def test_an_encoding_without_a_bias_has_no_sizes(variant):
    assert sizes(small_config(variant))[1] == {}


def test_long_sequences_are_measured_in_part(monkeypatch):
    monkeypatch.setattr(position_bias, "LONGEST", 5)
    model, found = sizes(small_config("t5"))
    table = reference.nested(arrays_of(model))["encoder"]["positions"]["relative"]["table"]
    expected = size_by_definition(reference.t5_bias(table, 5, 8, 6))
    np.testing.assert_allclose(found["relative"], expected, rtol=1e-4)
