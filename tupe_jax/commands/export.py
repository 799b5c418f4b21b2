"""Export a model to a new folder.

  tupe export runs/quickstart quickstart                   safetensors, JSON and the tokenizer
  tupe export runs/tupe_r released --format=fairseq

Every command and tupe_jax.load read the default format, without Orbax or TensorFlow.
--format=fairseq writes checkpoint.pt and dict.txt for the official TUPE code (TUPE-A and TUPE-R
only; needs the extra `torch`). checkpoint.pt has the official names, layouts and token ids: <s>,
<pad>, </s>, <unk>, <file>, <email>, <url>, the lines of dict.txt, <mask>. Our models have no
<file>, <email> and <url>; they are added, read as [UNK] and never predicted. The official code
loads the model with

  checkpoint_utils.load_model_ensemble(["released/checkpoint.pt"], {"data": "released"})

The tokenizer is written to the same folder. This imports the model again, bit for bit, with our
token ids:

  tupe import-fairseq released/checkpoint.pt tupe_r --vocabulary=released/vocabulary.model

A model without a tokenizer keeps its token ids. It must pad with token 1, as the official models
do.

--format=hf writes BERT-A for BertForMaskedLM and BertModel of Hugging Face's transformers (with a
head for next sentences for BertForPreTraining), and RoPE in the block of configs/modern_rope.py for
ModernBertForMaskedLM, in BERT's block for RoFormerForMaskedLM, and in EuroBERT's block for
EuroBertForMaskedLM; it has no other encodings.
ELECTRA with the positions of BERT-A is written for ElectraForPreTraining, and its generator for
ElectraForMaskedLM, to the folder `generator` inside. The tokenizer is written in their format, that
of an imported model as it was read. A SentencePiece tokenizer of ours is also copied, for
tupe_jax.load.

--format=sentence-transformers writes the same as hf, and a pooling, for SentenceTransformer.
--pooling=mean_all, the default, averages the vectors of all tokens, [CLS] and [SEP] included;
--pooling=cls takes that of [CLS]. `tupe encode` with the same --pooling gives the same vectors.

All formats keep every bit of the weights. Only the default format keeps the metadata of fine-tuned
heads (classes, score scale, input length): hf has no heads, and fairseq prints what is lost. A
model card, README.md, lists settings, data, steps, scores and the training command.
"""

import argparse

from tupe_jax.utils.paths import storage_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", help="a work directory, a checkpoint or a model folder")
    parser.add_argument("out", type=storage_path, help="the folder to write; must not exist")
    parser.add_argument(
        "--format",
        choices=["folder", "fairseq", "hf", "sentence-transformers"],
        default="folder",
        help="default: folder",
    )
    parser.add_argument(
        "--pooling",
        choices=["mean_all", "cls"],
        default="mean_all",
        help="of --format=sentence-transformers (default: mean_all)",
    )
    parser.add_argument(
        "--vocabulary",
        type=storage_path,
        help="for a model folder without one",
    )


def run(arguments: argparse.Namespace) -> None:
    from tupe_jax.inference.loading import load
    from tupe_jax.inference.model_card import model_card, save_model
    from tupe_jax.interop.fairseq_checkpoint import CHECKPOINT, write_checkpoint
    from tupe_jax.interop.hugging_face.exporting import write_files
    from tupe_jax.interop.hugging_face.sentence_layout import write_modules
    from tupe_jax.interop.model_folder import CARD, SENTENCEPIECE_TOKENIZER, new_folder

    model = load(arguments.checkpoint, arguments.vocabulary)
    if arguments.format == "folder":
        save_model(model, arguments.out)
    else:
        card = model_card(model, arguments.out.name, arguments.format)
        needs_tokenizer = arguments.format == "sentence-transformers"
        tokenizer = model.tokenizer if needs_tokenizer else model.optional_tokenizer
        generator = None if model.generator is None else model.generator.module
        with new_folder(arguments.out) as unfinished:
            if arguments.format in ("hf", "sentence-transformers"):
                write_files(model.module, tokenizer, unfinished, generator)
                if needs_tokenizer:
                    write_modules(unfinished, model.config, arguments.pooling)
            else:
                steps = model.metadata.step or 0
                write_checkpoint(unfinished, model.module, tokenizer, num_updates=steps)
                if tokenizer is not None:
                    (unfinished / SENTENCEPIECE_TOKENIZER).write_bytes(tokenizer.content)
            (unfinished / CARD).write_text(card, encoding="utf-8")
    files = ", ".join(sorted(file.name for file in arguments.out.iterdir()))
    print(f"in {arguments.out}: {files}")
    if arguments.format == "fairseq" and model.metadata.heads:
        heads = ", ".join(model.metadata.heads)
        print(f"not in {CHECKPOINT}: classes, score scale and input length of {heads}")
