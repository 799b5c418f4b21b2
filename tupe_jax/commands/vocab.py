"""Train a lower-cased SentencePiece BPE tokenizer on a data task or on text files.

  tupe vocab --text='books/*.txt.gz' --size=32768 --out=books.model
  tupe vocab --task='wikipedia + text:books/*.txt.gz' --out=paper.model

[PAD] [CLS] [SEP] [MASK] [UNK] are the tokens 0 to 4. The same text and settings give the same file.
`tupe prepare --help` documents tasks.
"""

import argparse
from typing import get_args

from tupe_jax.config.schema import OnError
from tupe_jax.data.pretraining.cleaning import CLEANING_STEPS, parse_cleaning
from tupe_jax.tokenizers.sentencepiece import DEFAULT_LINES, DEFAULT_SIZE, SPECIAL_TOKENS
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.object_storage import check_reachable
from tupe_jax.utils.paths import is_object, storage_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    corpus = parser.add_mutually_exclusive_group(required=True)
    corpus.add_argument("--task", help="source or mixture")
    corpus.add_argument("--text", metavar="GLOB", help="text files; short for --task=text:GLOB")
    parser.add_argument("--size", type=int, default=DEFAULT_SIZE, help="tokens (default: 32768)")
    parser.add_argument("--out", required=True, type=storage_path, help="the .model file to write")
    parser.add_argument(
        "--cleaning",
        default="all",
        help=f"all (default), none, or some of {', '.join(CLEANING_STEPS)}",
    )
    parser.add_argument(
        "--lines",
        type=int,
        default=DEFAULT_LINES,
        help="train on a sample of at most this many lines (default: 2000000)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the sample and of the built-in corpus"
    )
    parser.add_argument(
        "--on-error",
        choices=get_args(OnError),
        default="stop",
        help="at a broken record or file: stop (default) or skip it",
    )


def run(arguments: argparse.Namespace) -> None:
    for name, least in (("size", len(SPECIAL_TOKENS) + 1), ("lines", 1)):
        value = getattr(arguments, name)
        if value < least:
            raise UserError(f"--{name}={value} must be at least {least}")
    check_reachable(arguments.out)
    if arguments.out.is_dir():
        raise UserError(f"{arguments.out} is a folder; --out must be the .model file to write")
    if not (is_object(arguments.out) or arguments.out.parent.is_dir()):
        raise UserError(f"{arguments.out.parent}: no such folder to write the tokenizer to")
    cleaning = parse_cleaning(arguments.cleaning)

    # TensorFlow takes seconds to import; --help and wrong arguments need not wait for it.
    from tupe_jax.data.pretraining.train_tokenizer import train_tokenizer

    vocabulary = train_tokenizer(
        arguments.task or f"text:{arguments.text}",
        arguments.out,
        size=arguments.size,
        cleaning=cleaning,
        seed=arguments.seed,
        lines=arguments.lines,
        on_error=arguments.on_error,
    )
    print(f"{arguments.out}: {vocabulary.size:,} tokens, sha256 {vocabulary.sha256}")
