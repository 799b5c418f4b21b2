"""Convert a public encoder in Hugging Face's layout to a model folder.

  tupe import-hf bert-base-uncased/ bert/
  tupe import-hf electra-base-discriminator/ electra/ --generator=electra-base-generator/

The folder has config.json, the weights (model.safetensors, or pytorch_model.bin, which needs
PyTorch) and the tokenizer's files; nothing is downloaded. Model types: bert (also StructBERT and
MiniLM), ernie, distilbert, megatron-bert, rembert, roberta, xlm-roberta, camembert,
roberta-prelayernorm, electra, albert, mpnet, deberta, deberta-v2 (version 3; the convolution of
version 2 is not supported), xlnet, modernbert, roformer, esm, eurobert, nomic_bert, gte and
jina_embeddings_v3 (without its task adapters).

The result can be used, analyzed and fine-tuned like a model that was trained here. So can the
downloaded folder itself. Arrays that are left out, such as heads of other objectives, are listed.

ELECTRA is a pair of folders. The discriminator is analyzed and fine-tuned; --generator adds the
model that fills masks. The two must have the same embeddings.
"""

import argparse

from tupe_jax.utils.paths import storage_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=storage_path, help="the downloaded model")
    parser.add_argument("out", type=storage_path, help="the folder to write; must not exist")
    parser.add_argument(
        "--generator", type=storage_path, help="the downloaded generator of ELECTRA"
    )


def run(arguments: argparse.Namespace) -> None:
    from tupe_jax.inference.loading import load_hugging_face
    from tupe_jax.inference.model_card import save_model
    from tupe_jax.interop.hugging_face.files import require_config

    model, unused = load_hugging_face(arguments.folder, arguments.generator)
    save_model(model, arguments.out)
    config, model_type = model.config, require_config(arguments.folder)["model_type"]
    print(
        f"{arguments.out}: {model_type}, {config.num_layers} layers, "
        f"{config.hidden_size} wide, {config.num_heads} heads, {config.vocab_size} tokens"
    )
    for name in unused:
        print(f"left out: {name}")
