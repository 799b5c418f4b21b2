"""Read a public encoder in Hugging Face's layout: config, parameters and tokenizer."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tupe_jax.config.schema import ModelConfig
from tupe_jax.config.validation import one_of
from tupe_jax.interop.hugging_face import array_layouts, files, names
from tupe_jax.interop.hugging_face.common_settings import CheckpointContents
from tupe_jax.interop.hugging_face.json_settings import JsonSettings, name_source_in_errors
from tupe_jax.interop.hugging_face.name_tables import NAMES
from tupe_jax.interop.hugging_face.settings import model_config
from tupe_jax.interop.hugging_face.tokenizer import read_tokenizer
from tupe_jax.interop.model_folder import SENTENCEPIECE_TOKENIZER
from tupe_jax.interop.param_mapping import check_names, check_type, params_from_state
from tupe_jax.model.electra import own_paths
from tupe_jax.model.params import Array, ParamArrays, param_shapes
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path

ARRAY_LAYOUTS = {
    "roberta": array_layouts.roberta,
    "xlm-roberta": array_layouts.roberta,
    "camembert": array_layouts.roberta,
    "roberta-prelayernorm": array_layouts.roberta,
    "jina_embeddings_v3": array_layouts.roberta,
    "ernie": array_layouts.ernie,
    "roformer": array_layouts.roformer,
    "eurobert": array_layouts.eurobert,
    "deberta": array_layouts.deberta,
    "deberta-v2": array_layouts.deberta_v2,
    "xlnet": array_layouts.xlnet,
}


_NEVER_READ = {"jina_embeddings_v3": ("the task adapters, which are in other files",)}
"""What is left out of every model of a type, besides arrays in its files."""


def read_folder(folder: Path) -> tuple[ModelConfig, ParamArrays, Tokenizer, list[str]]:
    """The config, the parameters, the tokenizer, and what is left out."""
    settings = files.require_config(folder)
    source = str(folder / files.CONFIG)
    model_type = _model_type(settings, source)
    size = JsonSettings(settings, source).size("vocab_size")
    tokenizer = _read_tokenizer(folder, model_type, size)
    state = files.read_arrays(folder)
    config, params = params_from_state_dict(
        settings, state, sep_id=tokenizer.special.sep_id, source=source
    )
    unused = sorted(n for n in state if names.is_unused(NAMES[model_type], config, n))
    return config, params, tokenizer, [*unused, *_NEVER_READ.get(model_type, ())]


_ONCE_OWN_CODE = ("eurobert", "nomic_bert", "jina_embeddings_v3", "gte")
"""Types that were published with their own code, and are in `transformers` now."""


def _model_type(settings: Mapping[str, Any], source: str) -> str:
    """The model type; raise if the settings show that the arrays are not those of this type."""
    model_type = str(settings.get("model_type"))
    own_code = settings.get("auto_map") or {}
    if model_type not in _ONCE_OWN_CODE and any(name != "AutoTokenizer" for name in own_code):
        raise UserError(
            f"{source}: auto_map: the model has code of its own, which is not executed; use a "
            "version that `transformers` reads without it, if there is one"
        )
    for name in ("quantization_config", "compression_config"):
        if settings.get(name):
            raise UserError(
                f"{source}: {name}: quantized weights are not supported; use the original model"
            )
    return one_of(model_type, NAMES, f"model_type in {source}")


def check_pair(
    config: ModelConfig, params: ParamArrays, generator: ModelConfig, generator_params: ParamArrays
) -> None:
    """Raise unless these are a discriminator and its generator, with the same embeddings."""
    if not config.replaced_token_head:
        raise UserError(
            "the model has no head for replaced tokens; give ELECTRA's discriminator as the model, "
            "and its generator with --generator"
        )
    if not generator.masked_word_head:
        raise UserError(
            "the generator has no masked LM head; give ELECTRA's generator with --generator"
        )
    own = own_paths(generator, config)
    for path in sorted(generator_params.keys() - own):
        if not np.array_equal(generator_params[path], params[path]):
            raise UserError(
                f"{'.'.join(path)} differs between the discriminator and the generator; "
                "the two were not trained together"
            )


def _read_tokenizer(folder: Path, model_type: str, size: int) -> Tokenizer:
    """The folder's tokenizer; a model that we exported may have a SentencePiece file instead."""
    own = folder / SENTENCEPIECE_TOKENIZER
    if own.exists():
        return SentencePieceTokenizer.load(own)
    return read_tokenizer(folder, model_type, size)


def params_from_state_dict(
    settings: Mapping[str, Any],
    state: Mapping[str, Array],
    *,
    sep_id: int,
    source: str = "config.json",
) -> tuple[ModelConfig, ParamArrays]:
    """The config and the parameters of the model in a state dict with its `config.json`.

    The pooler and the heads for masked tokens, replaced tokens and next sentences are read if the
    checkpoint has them; heads of other objectives and tasks are left out. A missing, unknown or
    misshapen array is an error.
    """
    model_type = _model_type(settings, source)
    with name_source_in_errors(source):
        return _convert(model_type, JsonSettings(settings, source), state, sep_id)


def _convert(
    model_type: str, settings: JsonSettings, state: Mapping[str, Array], sep_id: int
) -> tuple[ModelConfig, ParamArrays]:
    table = NAMES[model_type]
    has_head = _has_masked_word_head(state, table, settings)
    types = {name: str(np.asarray(array).dtype) for name, array in state.items()}
    state = _usual_names(state, table, settings.flag("tie_word_embeddings", table.is_tied))
    untied_VxE = state.get(table.output_embedding)
    frequencies = [a for name, a in state.items() if name.endswith(names.ROPE_FREQUENCIES)]
    contents = CheckpointContents(
        pooler=f"{table.pooler}.weight" in state,
        masked_word_head=has_head,
        output_embedding_size=0 if untied_VxE is None else untied_VxE.shape[-1],
        sep_id=sep_id,
        replaced_token_head=f"{table.replaced_dense}.weight" in state,
        next_sentence_head=f"{table.next_sentence}.weight" in state,
        no_segments=model_type in ("bert", "electra", "roformer")
        and _is_zero_segment(state.get(names.SEGMENTS)),
        rope_frequencies=frequencies[0] if frequencies else None,
    )
    if contents.no_segments:
        del state[names.SEGMENTS]
    config = model_config(model_type, settings, contents)
    for name, kind in types.items():
        if not names.is_unused(table, config, name):
            check_type(name, kind)
    state = {n: array for n, array in state.items() if not names.is_unused(table, config, n)}
    if model_type in ARRAY_LAYOUTS:
        try:
            state = ARRAY_LAYOUTS[model_type](state, settings, config)
        except KeyError as error:
            raise UserError(f"the checkpoint lacks {error.args[0]}") from None
    state = array_layouts.with_zero_biases(state, table, config)
    if table.position_embeddings in state:
        # The first rows of RoBERTa's table are unused: positions start after the padding id.
        offset = settings.number("max_position_embeddings", 512) - config.position.max_length
        state[table.position_embeddings] = state[table.position_embeddings][offset:]
    mappings = list(names.mappings(table, config))
    check_names(state, mappings)
    return config, params_from_state(state, mappings, param_shapes(config, {}))


def _is_zero_segment(segments_NxD: Array | None) -> bool:
    """Whether there is one segment of zeros, as we export it for a model without segments."""
    return segments_NxD is not None and len(segments_NxD) == 1 and not segments_NxD.any()


def _has_masked_word_head(
    state: Mapping[str, Array], table: names.Names, settings: JsonSettings
) -> bool:
    """A head without a dense layer and with a tied output matrix may have no array of its own."""
    found = {names.usual_name(table, name) for name in state}
    if table.head_dense and f"{table.head_dense}.weight" not in found:
        return False
    if table.head_dense and not table.classifiers_have_head_dense:
        return True
    classes = settings.values.get("architectures")
    is_named = isinstance(classes, list) and "MaskedLM" in str(classes)
    return is_named or bool(found & {table.head_bias, table.output_embedding})


def _usual_names(state: Mapping[str, Array], table: names.Names, is_tied: bool) -> dict[str, Array]:
    """The arrays by current names, without the prefix of a model with a head and without copies.

    In a tied model the output matrix is such a copy. An untied model uses that matrix and the bias
    beside it.
    """
    renamed: dict[str, Array] = {}
    for name, array in state.items():
        renamed |= array_layouts.split_joined(
            names.usual_name(table, name), np.asarray(array, np.float32), table
        )
    for copy, original in table.head_copies.items():
        if copy not in renamed or (copy == table.output_embedding and not is_tied):
            continue
        array = renamed.pop(copy)
        if not is_tied:
            renamed[original] = array
        elif not np.array_equal(array, renamed.setdefault(original, array)):
            raise UserError(
                f"{copy} differs from {original}; a model that uses both has "
                "tie_word_embeddings=False"
            )
    if table.word_embeddings not in renamed:
        raise UserError(
            f"the checkpoint has no array {table.word_embeddings}: it is not of this model_type"
        )
    return renamed
