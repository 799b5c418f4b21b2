"""Compute sentence vectors.

  tupe encode runs/quickstart --file=sentences.txt --out=vectors.npy
  tupe encode runs/quickstart "a text" "another" > vectors.jsonl

With --out, writes an array [texts, size] for numpy.load; otherwise prints one JSON object per line,
{"text", "vector"}. A vector is the mean of the last hidden states of the text's tokens, with
--pooling=mean_all also of [CLS] and [SEP], as sentence-transformers has it; or with --pooling=cls
the last hidden state of [CLS], which only fine-tuning trains.
"""

import argparse
import json

from tupe_jax.commands.given_texts import add_model_and_texts, given_texts
from tupe_jax.utils.errors import UserError, reason, writing_failed
from tupe_jax.utils.paths import storage_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_and_texts(parser)
    parser.add_argument(
        "--pooling", choices=["mean", "mean_all", "cls"], default="mean", help="default: mean"
    )
    parser.add_argument("--out", type=storage_path, help="an .npy file (default: print JSON lines)")


def run(arguments: argparse.Namespace) -> None:
    texts = given_texts(arguments)
    if arguments.out and arguments.out.suffix != ".npy":
        raise UserError(
            f"--out={arguments.out} must end in .npy; without --out, JSON lines are printed"
        )
    if arguments.out and arguments.out.is_dir():
        raise UserError(f"--out={arguments.out} is a folder; give the .npy file to write")
    if arguments.out and not arguments.out.parent.is_dir():
        raise UserError(f"--out={arguments.out}: no such folder {arguments.out.parent}")

    import numpy as np

    from tupe_jax.inference.loading import load
    from tupe_jax.utils.files import atomic_file

    vectors_NxD = load(arguments.checkpoint, arguments.vocabulary).encode(texts, arguments.pooling)
    if arguments.out is None:
        for text, vector in zip(texts, vectors_NxD.tolist(), strict=True):
            print(json.dumps({"text": text, "vector": vector}, ensure_ascii=False))
        return
    try:
        with atomic_file(arguments.out) as unfinished, unfinished.open("wb") as file:
            np.save(file, vectors_NxD)
    except OSError as error:
        raise writing_failed(f"cannot write {arguments.out}: {reason(error)}", error) from None
    vectors = f"{len(texts)} vector{'s' * (len(texts) > 1)}"
    print(f"{arguments.out}: {vectors} of {vectors_NxD.shape[1]} numbers")
