"""ELECTRA against `transformers`: losses, every gradient, and pairs of folders both ways."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers
from flax import nnx

from tests.interop.hugging_face import public_encoders as public
from tests.model.helpers import random_tokens, small_config, spread_model
from tupe_jax import cli
from tupe_jax.config.schema import (
    Config,
    ModelConfig,
    ObjectiveConfig,
    PositionConfig,
    discriminator_config,
    generator_config,
)
from tupe_jax.inference.loading import load, load_hugging_face
from tupe_jax.inference.model_card import save_model
from tupe_jax.inference.trained_model import TrainedModel
from tupe_jax.interop.hugging_face import names
from tupe_jax.interop.hugging_face.importing import check_pair, params_from_state_dict
from tupe_jax.interop.hugging_face.name_tables import ELECTRA
from tupe_jax.interop.param_mapping import state_from_params
from tupe_jax.model.electra import Electra, own_paths
from tupe_jax.model.params import arrays_of, path_names
from tupe_jax.objectives.base import total_loss
from tupe_jax.objectives.masked_lm import masked_logits
from tupe_jax.objectives.masking import MaskedBatch
from tupe_jax.objectives.replaced_token import (
    ReplacedTokenObjective,
    Replacement,
)
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer, train_sentencepiece
from tupe_jax.utils.errors import UserError


@functools.cache
def their_pair():
    """A discriminator and a smaller generator with the same embeddings, of random weights."""
    torch.manual_seed(1)
    sizes = {**public.SIZES, "embedding_size": 24, "attn_implementation": "eager"}
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    discriminator = transformers.ElectraForPreTraining(transformers.ElectraConfig(**sizes))
    generator = transformers.ElectraForMaskedLM(transformers.ElectraConfig(**{**sizes, **small}))
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    with torch.no_grad():
        for name, parameter in [*discriminator.named_parameters(), *generator.named_parameters()]:
            is_scale = "norm" in name.lower() and name.endswith("weight")
            parameter.copy_(is_scale + 0.2 * torch.randn_like(parameter))
    return generator.eval(), discriminator.eval()


def our_pair():
    """The same as one module of ours."""
    generator, discriminator = (
        params_from_state_dict(model.config.to_dict(), public.arrays(model), sep_id=public.SEP)
        for model in their_pair()
    )
    check_pair(*discriminator, *generator)
    configs, params = zip(generator, discriminator, strict=True)
    graph, abstract = nnx.split(nnx.eval_shape(lambda: Electra(*configs, rngs=nnx.Rngs(0))))
    of = dict(zip(("generator", "discriminator"), params, strict=True))
    filled = [
        (path, param.replace(jnp.asarray(of[path[0]][path_names(path)[1:]])))
        for path, param in nnx.to_flat_state(abstract)
    ]
    return nnx.merge(graph, nnx.from_flat_state(filled))


def inputs():
    """Two sequences of which some tokens are masked; the second has unused slots and padding."""
    tokens, _, segments = public.rows()
    positions = np.array([[2, 5, 10, 17], [1, 7, 0, 0]])
    weights = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], np.float32)
    targets = np.take_along_axis(tokens, positions, axis=1)
    masked = tokens.copy()
    for row, (some, used) in enumerate(zip(positions, weights, strict=True)):
        masked[row, some[used > 0]] = 2
    noise = jax.random.key_data(jax.random.split(jax.random.key(0), 2))
    batch = MaskedBatch(*map(jnp.asarray, (masked, positions, targets, weights)))
    return Replacement(jnp.asarray(tokens), batch, noise), segments


@pytest.mark.slow
def test_both_losses_and_every_gradient():
    module, (given, segments) = our_pair(), inputs()
    graph, params = nnx.split(module)
    # The padding id is all that the losses read of a config.
    objective = ReplacedTokenObjective(Config(ModelConfig(pad_id=public.PAD)))
    weights = objective.weights(given)

    @jax.jit
    def ours(params):
        def loss(params):
            terms = objective.terms(nnx.merge(graph, params), given, None)
            return total_loss(objective, terms, weights), terms

        return jax.grad(loss, has_aux=True)(params)

    gradient, terms = jax.device_get(ours(params))
    logits = nnx.jit(masked_logits)(module.generator, given.masked, None)
    replaced = np.asarray(objective.replace_tokens(logits, given))
    assert 0 < (replaced != np.asarray(given.tokens_BxS)).sum() <= 6
    their_losses, theirs = their_step(given, segments, replaced)
    for part, loss in their_losses.items():
        np.testing.assert_allclose(terms[part].loss / weights[part], loss, rtol=1e-5)

    named = {path_names(path): np.asarray(g[...]) for path, g in nnx.to_flat_state(gradient)}
    compared = set()
    for part, model in (("generator", module.generator), ("discriminator", module.discriminator)):
        of_part = {path[1:]: g for path, g in named.items() if path[0] == part}
        mappings = names.mappings(ELECTRA, model.config)
        ours_by_name = state_from_params(of_part, [m for m in mappings if m.path in of_part])
        for name, g in ours_by_name.items():
            other = theirs[part][name]
            # Softmax ignores the biases of keys: their gradients are 0 up to rounding.
            tolerance = 1e-6 if name.endswith("key.bias") else 1e-5 * abs(other).max()
            np.testing.assert_allclose(g, other, rtol=0, atol=tolerance, err_msg=f"{part} {name}")
            compared.add((part, name))
    everything = {(part, name) for part, of_part in theirs.items() for name in of_part}
    shared = {(part, name) for part, name in everything - compared}
    assert {part for part, _ in shared} == {"generator"}
    assert {name.split(".")[0] for _, name in shared} == {"embeddings"}


def their_step(given, segments, replaced):
    """Both losses of `transformers` for these samples, and the gradients by our table's names."""
    generator, discriminator = their_pair()
    tokens = np.asarray(given.tokens_BxS)
    common = {
        "attention_mask": torch.tensor(tokens != public.PAD, dtype=torch.int64),
        "token_type_ids": torch.tensor(segments),
    }
    masked, used = given.masked, np.asarray(given.masked.weights_BxM) > 0
    labels = np.full(tokens.shape, -100)
    for row, (some, here) in enumerate(zip(np.asarray(masked.positions_BxM), used, strict=True)):
        labels[row, some[here]] = tokens[row, some[here]]
    first = generator(
        input_ids=torch.tensor(np.asarray(masked.tokens_BxS)), labels=torch.tensor(labels), **common
    ).loss
    second = discriminator(
        input_ids=torch.tensor(replaced),
        labels=torch.tensor(replaced != tokens, dtype=torch.int64),
        **common,
    ).loss
    (first + 50 * second).backward()
    gradients = {
        part: {
            name.removeprefix("electra."): parameter.grad.numpy()
            for name, parameter in model.named_parameters()
        }
        for part, model in (("generator", generator), ("discriminator", discriminator))
    }
    return {"generator": first.item(), "discriminator": second.item()}, gradients


@pytest.mark.slow
def test_the_logits_of_replaced_tokens():
    tokens, is_token, segments = public.rows()
    _, discriminator = their_pair()
    with torch.no_grad():
        theirs = discriminator(
            input_ids=torch.tensor(tokens),
            attention_mask=torch.tensor(is_token.astype(np.int64)),
            token_type_ids=torch.tensor(segments),
        ).logits.numpy()
    ours = nnx.jit(lambda model: model.replaced_BxS(tokens))(our_pair().discriminator)
    np.testing.assert_allclose(
        np.asarray(ours)[is_token], theirs[is_token], rtol=0, atol=1e-5 * abs(theirs).max()
    )


@pytest.fixture(scope="module")
def trained_here(tmp_path_factory):
    """A model folder with a generator, and the folder that is written for `transformers`."""
    folder = tmp_path_factory.mktemp("electra")
    letters = "abcdefghijklmnopqrstuvwxyz"
    content = train_sentencepiece([" ".join(letters), "a cat and a dog and a boat"] * 20, 70)
    position = PositionConfig("added", "none", untie_cls=False, max_length=20)
    config = small_config(position=position, vocab_size=70, num_layers=1)
    objective = ObjectiveConfig(name="replaced_token", generator_size=0.5)
    small = generator_config(config, objective)
    discriminator = spread_model(discriminator_config(config))
    params = arrays_of(discriminator)
    generator = arrays_of(spread_model(small, seed=1))
    shared = generator.keys() - own_paths(small, discriminator.config)
    generator |= {path: params[path] for path in shared}
    tokenizer = SentencePieceTokenizer.parse(content, folder)
    model = TrainedModel(
        folder, discriminator.config, params, tokenizer, generator=(small, generator)
    )
    save_model(model, folder / "native")
    assert cli.main(["export", str(folder / "native"), str(folder / "hf"), "--format=hf"]) == 0
    return folder, model


def assert_same(one, other):
    assert one.config == other.config
    assert one.params.keys() == other.params.keys()
    for path, array in one.params.items():
        np.testing.assert_array_equal(array, other.params[path])


def test_a_model_folder_keeps_both_networks(trained_here):
    folder, model = trained_here
    back = load(folder / "native")
    assert_same(model, back)
    assert_same(model.generator, back.generator)
    arrays = safetensors.numpy.load_file(folder / "native/model.safetensors")
    of_generator = [name for name in arrays if name.startswith("generator.")]
    assert "generator.encoder.word_embedding" not in of_generator
    assert len(of_generator) == len(back.generator.params) - 4
    assert "a generator, 1 layer, 8 wide" in repr(back)


def test_a_pair_of_folders_is_imported_bit_for_bit(trained_here, tmp_path):
    folder, model = trained_here
    out = tmp_path / "back"
    given = [str(folder / "hf"), str(out), f"--generator={folder / 'hf/generator'}"]
    assert cli.main(["import-hf", *given]) == 0
    back = load(out)
    assert_same(model, back)
    assert_same(model.generator, back.generator)


def test_transformers_reads_both_networks(trained_here):
    folder, model = trained_here
    tokens = random_tokens(vocab=70)
    is_token = torch.tensor(tokens != 0)
    discriminator = transformers.ElectraForPreTraining.from_pretrained(folder / "hf").eval()
    generator = transformers.ElectraForMaskedLM.from_pretrained(folder / "hf/generator").eval()
    with torch.no_grad():
        theirs = [m(torch.tensor(tokens), is_token).logits for m in (discriminator, generator)]
    ours = (
        nnx.jit(lambda m: m.replaced_BxS(tokens))(model.module),
        nnx.jit(lambda m: m(tokens))(model.generator.module),
    )
    for mine, other in zip(ours, theirs, strict=True):
        mine, other = np.asarray(mine)[tokens != 0], other.numpy()[tokens != 0]
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-5 * abs(other).max())


def test_masks_are_filled_by_the_generator_only(trained_here, caplog):
    folder, model = trained_here
    caplog.set_level("INFO")
    by_pair, alone = model.fill_mask("a [MASK] and"), model.generator.fill_mask("a [MASK] and")
    assert by_pair == alone
    assert "generator" in caplog.text
    assert model.score("a cat") == model.generator.score("a cat")
    without = load(folder / "hf")
    with pytest.raises(UserError, match="generator"):
        without.fill_mask("a [MASK] and")
    with pytest.raises(UserError, match="generator"):
        without.score("a cat")
    np.testing.assert_allclose(without.encode("a cat"), model.encode("a cat"), atol=1e-6)


def test_folders_that_are_no_pair_are_refused(trained_here, tmp_path):
    folder, model = trained_here
    for first, second, words in (
        (folder / "hf/generator", folder / "hf/generator", "model .*replaced tokens"),
        (folder / "hf", folder / "hf", "generator .*masked LM"),
    ):
        with pytest.raises(UserError, match=words):
            load_hugging_face(first, second)
    params = {**model.generator.params}
    params["encoder", "word_embedding"] = params["encoder", "word_embedding"] + 1
    with pytest.raises(UserError, match=r"encoder\.word_embedding"):
        check_pair(model.config, model.params, model.generator.config, params)
