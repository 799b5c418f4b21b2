"""Predict the tokens for [MASK].

  tupe fill-mask runs/quickstart "the farmer [MASK] the old house."
  tupe fill-mask runs/quickstart --file=sentences.txt --top_k=10 --json
  echo "she [MASK] to [MASK]." | tupe fill-mask runs/quickstart

Each [MASK] stands for one token and is predicted independently of the others. A token that
continues the previous word is shown as ##ing. In Python: tupe_jax.load(...).fill_mask(...).
"""

import argparse
import dataclasses
import json

from tupe_jax.commands.given_texts import add_model_and_texts, given_texts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_and_texts(parser)
    parser.add_argument("--top_k", type=int, default=5, help="tokens for each mask (default: 5)")
    parser.add_argument("--json", action="store_true", help="one JSON object per text")


def run(arguments: argparse.Namespace) -> None:
    texts = given_texts(arguments)

    from tupe_jax.inference.loading import load

    model = load(arguments.checkpoint, arguments.vocabulary)
    for filled in model.fill_mask(texts, arguments.top_k):
        if arguments.json:
            print(json.dumps(dataclasses.asdict(filled), ensure_ascii=False))
        else:
            print(filled.text, *(", ".join(map(str, mask)) for mask in filled.guesses), sep="\n  ")
