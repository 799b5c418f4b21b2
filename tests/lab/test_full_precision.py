"""Measurements request float32 products from every compiler.

Without that, a TPU multiplies float32 matrices in bfloat16 and a recent GPU in TF32. The request is
in the program that is handed to the compiler, whatever the platform.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.lab.conftest import PIECES
from tests.model.helpers import save_folder, small_config, spread_model, with_position
from tupe_jax import cli, lab
from tupe_jax.ablation.config import MeasureConfig
from tupe_jax.ablation.measure import measure, pairs_to_probe_with, probe
from tupe_jax.inference.loading import load
from tupe_jax.model.measurement import full_precision

PRODUCT = re.compile(
    r"stablehlo\.dot_general.*?precision = \[(\w+), (\w+)\]|stablehlo\.dot_general"
)
LENGTH = 40


@pytest.fixture(scope="module")
def folder(vocabulary_file, tmp_path_factory):
    """BERT-R with a head for NLI: all measurements apply to it. It computes in bfloat16."""
    path = tmp_path_factory.mktemp("precision") / "model"
    config = small_config("bert_r", vocab_size=PIECES, num_layers=2, dtype="bfloat16")
    model = spread_model(with_position(config, max_length=LENGTH), heads={"builtin_nli": 3})
    save_folder(model, path, vocabulary_file.read_bytes())
    return path


def precisions(programs):
    """Those of the products in all programs that were compiled."""
    texts = [file.read_text() for file in programs.iterdir()]
    return [found.groups() for text in texts for found in PRODUCT.finditer(text)]


@pytest.fixture
def programs(tmp_path):
    """The folder to which JAX writes every program it compiles in the test."""
    path = tmp_path / "programs"
    path.mkdir()
    jax.clear_caches()
    jax.config.update("jax_dump_ir_to", str(path))
    yield path
    jax.config.update("jax_dump_ir_to", "")
    jax.clear_caches()


def analyze(folder, out):
    assert cli.main(["analyze", str(folder), "--length=8", "--words=2", f"--out={out}"]) == 0
    assert "Shuffle" in (out / "report.txt").read_text()


def analyze_two(folder, out):
    asked = ["analyze", str(folder), str(folder), "--length=8", "--words=2", f"--out={out}"]
    assert cli.main(asked) == 0


def measure_in_a_study(folder, out):
    config = MeasureConfig(
        length=8, words=2, minimal_pairs=20, probe_task="builtin_nli", probe_pairs=100
    )
    measure(config, load(folder), np.full((2, 8), 5, np.int32))
    probe(folder, pairs_to_probe_with(config), LENGTH)


def look_in_a_notebook(folder, out):
    model = load(folder)
    model.position_bias(8)
    lab.attention_by_bias(model.module, 8)
    lab.attention_among_identical_words(model.module, 8, [7])
    lab.four_terms(model.module, lab.builtin_sequences(model.tokenizer, 8))


@pytest.mark.slow
@pytest.mark.parametrize("use", [analyze, analyze_two, measure_in_a_study, look_in_a_notebook])
def test_every_product_of_a_measurement_has_full_precision(use, folder, programs, tmp_path):
    use(folder, tmp_path / "out")
    found = precisions(programs)
    assert found
    assert set(found) == {("HIGHEST", "HIGHEST")}


def test_so_it_is_in_a_program_for_a_tpu(folder):
    model = load(folder).float32_module()
    graph, state = nnx.split(model)
    hidden = jax.jit(lambda state, tokens: nnx.merge(graph, state).encode(tokens))

    def lowered():
        trace = hidden.trace(state, jnp.ones((2, 16), jnp.int32))
        text = trace.lower(lowering_platforms=("tpu",)).as_text()
        return {found.groups() for found in PRODUCT.finditer(text)}

    assert lowered() == {("DEFAULT", "DEFAULT")}
    assert full_precision(lowered)() == {("HIGHEST", "HIGHEST")}


def test_on_a_cpu_it_changes_no_number(folder):
    model = load(folder).float32_module()
    tokens = np.random.default_rng(0).integers(5, PIECES, (4, LENGTH))
    np.testing.assert_array_equal(full_precision(model)(tokens), model(tokens))
