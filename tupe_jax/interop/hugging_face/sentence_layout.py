"""Write what sentence-transformers needs beside a model: the modules and the pooling."""

import json
import pathlib
from typing import Literal

from tupe_jax.config.schema import ModelConfig

SentencePooling = Literal["cls", "mean_all"]
_POOLING_FOLDER = "1_Pooling"


def write_modules(folder: pathlib.Path, config: ModelConfig, pooling: SentencePooling) -> None:
    """Make a folder in Hugging Face's layout one that `SentenceTransformer` reads."""
    models = "sentence_transformers.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{models}.Transformer"},
        {"idx": 1, "name": "1", "path": _POOLING_FOLDER, "type": f"{models}.Pooling"},
    ]
    pooled = {
        "word_embedding_dimension": config.hidden_size,
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean_all",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    sequences = {"max_seq_length": config.position.max_length, "do_lower_case": False}
    (folder / _POOLING_FOLDER).mkdir()
    for name, content in (
        ("modules.json", modules),
        (f"{_POOLING_FOLDER}/config.json", pooled),
        ("sentence_bert_config.json", sequences),
    ):
        (folder / name).write_text(f"{json.dumps(content, indent=2)}\n", encoding="utf-8")
