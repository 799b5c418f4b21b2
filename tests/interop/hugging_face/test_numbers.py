"""Public encoders compute the same as in `transformers`; unsupported ones are refused."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import nnx

from tests.interop.hugging_face import public_encoders as public
from tupe_jax.interop.hugging_face.importing import params_from_state_dict
from tupe_jax.model.params import arrays_of, model_from
from tupe_jax.utils.errors import UserError


def imported(kind, **changes):
    model = public.theirs(kind)
    config = {**model.config.to_dict(), **changes}
    return model_from(*params_from_state_dict(config, public.arrays(model), sep_id=public.SEP))


@pytest.fixture(scope="module", params=public.MODELS)
def both(request):
    """Our numbers and theirs for the same rows."""
    tokens, is_word, segments = public.rows()
    model = imported(request.param)
    # One layer is compiled instead of all.
    model = model_from(replace(model.config, layer_loop="scan"), arrays_of(model))

    @nnx.jit
    def everything(model, tokens):
        hidden = model.hidden_states(tokens)
        words = None if model.masked_word_head is None else model(tokens)
        return hidden, words, model.encoder.attention_weights(tokens)

    ours = jax.device_get(everything(model, tokens))
    return ours, public.run(public.theirs(request.param), tokens, is_word, segments), is_word


@pytest.mark.slow
def test_the_pooler():
    tokens, is_word, segments = public.rows()

    @nnx.jit
    def pool(model):
        return model.pooler(model.cls_BxD(model.encode(tokens), tokens))

    pooled = pool(imported("bert"))
    theirs = public.run(public.theirs("bert").bert, tokens, is_word, segments)
    assert_close(pooled, theirs.pooler_output)


def assert_close(ours, theirs, where=...):
    """To 1e-5 of the largest number; values at padding are not compared."""
    ours, theirs = np.asarray(ours)[where], theirs.numpy()[where]
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * abs(theirs).max())


@pytest.mark.slow
def test_the_hidden_states_of_every_layer(both):
    (hidden, *_), theirs, is_word = both
    assert len(hidden) == len(theirs.hidden_states) >= 3
    for ours, other in zip(hidden, theirs.hidden_states, strict=True):
        assert_close(ours, other, is_word)


@pytest.mark.slow
def test_the_attention_of_every_head(both):
    (*_, attention), theirs, is_word = both
    for ours, other in zip(attention, theirs.attentions, strict=True):
        assert_close(ours.swapaxes(1, 2), other.swapaxes(1, 2), is_word)


@pytest.mark.slow
def test_the_logits_of_masked_words(both):
    (_, words, _), theirs, is_word = both
    if words is None:  # XLNet's are of words that see only some of the others
        assert "mems" in theirs
        return
    logits = theirs.prediction_logits if "prediction_logits" in theirs else theirs.logits
    assert_close(words, logits, is_word)


@pytest.mark.parametrize("farthest", [6, 5])
def test_more_buckets_than_distances_are_refused(farthest):
    with pytest.raises(UserError, match=f"position_buckets=6 .*{farthest}"):
        imported("deberta-v3", max_relative_positions=farthest)


def test_all_names_of_the_classifier_dropout_are_read():
    assert imported("bert", classifier_dropout=0.3).config.classifier_dropout == 0.3
    assert imported("bert", hidden_dropout_prob=0.2).config.classifier_dropout == 0.2
    assert imported("albert", classifier_dropout_prob=0.3).config.classifier_dropout == 0.3
    assert imported("albert").config.classifier_dropout == 0.1
    assert imported("deberta-v2", cls_dropout=0.3).config.classifier_dropout == 0.3
    assert imported("xlnet", summary_last_dropout=0.3).config.classifier_dropout == 0.3
    assert imported("deberta", hidden_dropout_prob=0.2).config.classifier_dropout == 0.2
