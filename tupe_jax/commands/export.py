"""Write a model for use elsewhere, into a new folder.

  tupe export runs/quickstart quickstart                   safetensors, JSON and the vocabulary
  tupe export runs/tupe_r released --format=fairseq

The first is read by every command and by tupe_jax.load, without Orbax or TensorFlow. --format=
fairseq writes checkpoint.pt and dict.txt for the official TUPE code (TUPE-A and TUPE-R only; needs
the extra `torch`). checkpoint.pt has the official names, layouts and token ids: <s>, <pad>, </s>,
<unk>, <file>, <email>, <url>, the lines of dict.txt, <mask>. Our models have no <file>, <email> and
<url>; the added ones read as [UNK] and are never predicted. The official code loads the model by

  checkpoint_utils.load_model_ensemble(["released/checkpoint.pt"], {"data": "released"})

The vocabulary is written beside it. This brings the model back bit for bit, with our token ids:

  tupe import-fairseq released/checkpoint.pt tupe_r --vocabulary=released/vocabulary.model

A model without a vocabulary is exported with the token ids it has, if it pads with token 1 as the
official models do.

--format=hf writes BERT-A, and no other, for BertForMaskedLM and BertModel of Hugging Face's
transformers. An imported tokenizer goes with it. Our own vocabulary lies beside it as it is, where
transformers makes nothing of it; tupe_jax.load reads the folder with either.

Every way the arrays keep every bit. What a fine-tuned head answers (its classes, the scale of its
scores, its longest row) is kept only by the first: hf takes no heads, and fairseq says what is
lost. A model card, README.md, tells settings, data, steps, scores and the command that trained it.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", help="a work directory, a checkpoint or a model folder")
    parser.add_argument("out", type=Path, help="the folder to write; must not exist")
    parser.add_argument(
        "--format", choices=["folder", "fairseq", "hf"], default="folder", help="default: folder"
    )
    parser.add_argument("--vocabulary", type=Path, help="for a model folder that has none")


def run(arguments: argparse.Namespace) -> None:
    from tupe_jax.inference.loading import load
    from tupe_jax.inference.model_card import model_card, save_model
    from tupe_jax.interop.checkpoint_file import CHECKPOINT, write_checkpoint
    from tupe_jax.interop.hugging_face.exporting import write_files
    from tupe_jax.interop.model_folder import CARD, SENTENCEPIECE_TOKENIZER, new_folder

    model = load(arguments.checkpoint, arguments.vocabulary)
    if arguments.format == "folder":
        save_model(model, arguments.out)
    else:
        card = model_card(model, arguments.out.name, arguments.format)
        tokenizer = model.optional_tokenizer
        content = None if tokenizer is None else tokenizer.content
        with new_folder(arguments.out) as unfinished:
            if arguments.format == "hf":
                write_files(model.module, content, unfinished)
            else:
                steps = model.metadata.step or 0
                write_checkpoint(unfinished, model.module, tokenizer, num_updates=steps)
                if content is not None:
                    (unfinished / SENTENCEPIECE_TOKENIZER).write_bytes(content)
            (unfinished / CARD).write_text(card, encoding="utf-8")
    files = ", ".join(sorted(file.name for file in arguments.out.iterdir()))
    print(f"in {arguments.out}: {files}")
    if arguments.format == "fairseq" and model.metadata.heads:
        heads = ", ".join(model.metadata.heads)
        print(f"not in {CHECKPOINT}: classes, score scale and input length of {heads}")
