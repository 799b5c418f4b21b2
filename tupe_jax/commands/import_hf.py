"""Turn a public encoder in Hugging Face's layout into a model folder with its vocabulary.

  tupe import-hf bert-base-uncased/ bert/

The folder has config.json, the weights (model.safetensors, or pytorch_model.bin, which needs
PyTorch) and the tokenizer's files; nothing is downloaded. Model types: bert (also StructBERT and
MiniLM), roberta, albert, electra, mpnet, deberta, deberta-v2 (version 3; the convolution that
version 2 has is refused) and xlnet.

What this makes can be used, analysed and fine-tuned like our own models. So can the downloaded
folder itself; either way it is said which arrays were left out, such as heads of other objectives.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="a downloaded model")
    parser.add_argument("out", type=Path, help="the folder to write; must not exist")


def run(arguments: argparse.Namespace) -> None:
    from tupe_jax.inference.loading import load_hugging_face
    from tupe_jax.inference.model_card import save_model
    from tupe_jax.interop.hugging_face.files import require_config

    model, unused = load_hugging_face(arguments.folder)
    save_model(model, arguments.out)
    config, model_type = model.config, require_config(arguments.folder)["model_type"]
    print(
        f"{arguments.out}: {model_type}, {config.num_layers} layers, "
        f"{config.hidden_size} wide, {config.num_heads} heads, {config.vocab_size} tokens"
    )
    for name in unused:
        print(f"left out: {name}")
