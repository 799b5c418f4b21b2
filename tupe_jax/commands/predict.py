"""Classify texts or pairs of texts with a fine-tuned model.

  tupe predict runs/finetune-builtin_sst "the farmer enjoyed the long day."
  tupe predict runs/finetune-builtin_nli --file=pairs.tsv --json

A pair is two texts with a tab between them. Prints the most likely class with its probability, or
the score, then a tab and the text.
"""

import argparse
import json
from typing import TYPE_CHECKING, Any

from tupe_jax.commands.given_texts import add_model_and_texts, given_texts
from tupe_jax.utils.errors import UserError

if TYPE_CHECKING:
    from tupe_jax.inference.classify import Texts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_and_texts(parser)
    parser.add_argument("--head", help="the task, if the model was fine-tuned on several")
    parser.add_argument("--json", action="store_true", help="one JSON object per text")


def run(arguments: argparse.Namespace) -> None:
    texts = given_texts(arguments)

    from tupe_jax.inference.batching import describe
    from tupe_jax.inference.classify import Answer
    from tupe_jax.inference.loading import load

    for number, text in enumerate(texts, 1):
        if text.count("\t") > 1:
            raise UserError(
                f"{describe(text, number, len(texts))} has several tabs; a pair has one tab, "
                "between its two texts"
            )
    inputs: list[Texts] = [_pair_or_text(text) for text in texts]
    model = load(arguments.checkpoint, arguments.vocabulary)
    for text, answer in zip(texts, model.predict(inputs, arguments.head), strict=True):
        if isinstance(answer, Answer):
            values: dict[str, Any] = {"label": answer.label, "probabilities": answer.probabilities}
            shown = str(answer)
        else:
            values, shown = {"score": float(answer)}, f"{answer:.4g}"
        as_json = json.dumps({"text": text, **values}, ensure_ascii=False)
        print(as_json if arguments.json else f"{shown}\t{text}")


def _pair_or_text(text: str) -> "Texts":
    first, tab, second = text.partition("\t")
    return (first, second) if tab else text
