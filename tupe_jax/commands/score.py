"""Score texts by their pseudo-log-likelihood in nats.

  tupe score runs/quickstart "the farmer sees the house." "the farmer see the house."
  tupe score runs/quickstart --file=sentences.txt

Each token is masked in turn, and the log-probabilities of the masked tokens are summed: higher is
more likely. Compare texts of about the same length. Prints score, tab, text.
"""

import argparse

from tupe_jax.commands.given_texts import add_model_and_texts, given_texts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_and_texts(parser)


def run(arguments: argparse.Namespace) -> None:
    texts = given_texts(arguments)

    from tupe_jax.inference.loading import load

    scores_N = load(arguments.checkpoint, arguments.vocabulary).score(texts)
    for score, text in zip(scores_N, texts, strict=True):
        print(f"{score:.3f}\t{text}")
