"""Convert the `config.json` of each model type to a `ModelConfig`; raise on unsupported values."""

from collections.abc import Callable, Mapping

from tupe_jax.config.schema import ModelConfig
from tupe_jax.interop.hugging_face import bert_settings, relative_settings, rope_settings
from tupe_jax.interop.hugging_face.common_settings import CheckpointContents
from tupe_jax.interop.hugging_face.json_settings import JsonSettings, name_source_in_errors


def model_config(
    model_type: str, settings: JsonSettings, contents: CheckpointContents
) -> ModelConfig:
    """The `ModelConfig` for a `config.json` of this model type."""
    with name_source_in_errors(settings.source):
        return CONFIGS[model_type](settings, contents)


CONFIGS: Mapping[str, Callable[[JsonSettings, CheckpointContents], ModelConfig]] = {
    "bert": bert_settings.bert,
    "ernie": bert_settings.bert,
    "distilbert": bert_settings.distilbert,
    "megatron-bert": bert_settings.megatron_bert,
    "rembert": bert_settings.rembert,
    "roberta": bert_settings.roberta,
    "xlm-roberta": bert_settings.roberta,
    "camembert": bert_settings.roberta,
    "roberta-prelayernorm": bert_settings.roberta_prelayernorm,
    "electra": bert_settings.electra,
    "albert": bert_settings.albert,
    "mpnet": bert_settings.mpnet,
    "deberta": relative_settings.deberta,
    "deberta-v2": relative_settings.deberta_v2,
    "xlnet": relative_settings.xlnet,
    "modernbert": rope_settings.modernbert,
    "roformer": rope_settings.roformer,
    "esm": rope_settings.esm,
    "eurobert": rope_settings.eurobert,
    "nomic_bert": rope_settings.nomic_bert,
    "jina_embeddings_v3": rope_settings.jina_embeddings_v3,
    "gte": rope_settings.gte,
}
