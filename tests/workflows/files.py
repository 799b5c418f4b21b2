"""Small files in the formats that users bring: texts, GLUE, minimal pairs, others' models."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tests.finetune.glue_files import write_split
from tests.interop.hugging_face import public_encoders
from tests.interop.test_fairseq import torch_checkpoint
from tests.training import runs
from tupe_jax.data.builtin import documents
from tupe_jax.data.labelled.example import Example
from tupe_jax.data.labelled.glue import TASKS
from tupe_jax.interop.hugging_face.tokenizer import KINDS

WORDS = ("boat", "city", "door", "farm", "girl", "hill", "lamp", "moon")


def write_text(file, seed=0):
    """Documents with a sentence on each line and a blank line between them, as .gz."""
    texts = ("\n".join(s.text for s in d.sentences) for d in documents(seed, start=0, count=400))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress("\n\n".join(texts).encode()))


def write_records(json_lines, parquet):
    """Documents as JSON Lines, compressed, with a broken last line; and as a column of Parquet."""
    texts = ["\n".join(s.text for s in d.sentences) for d in documents(2, start=0, count=800)]
    lines = [*(json.dumps({"text": text}) for text in texts[:400]), "not JSON"]
    json_lines.parent.mkdir(parents=True, exist_ok=True)
    json_lines.write_bytes(zstandard.compress("\n".join(lines).encode()))
    pq.write_table(pa.table({"body": texts[400:]}), parquet)


def write_rows(folder):
    """What `tupe vocab` and `tupe prepare` make of a small corpus: rows of 16 tokens."""
    runs.make_corpus(folder.parent)


def write_glue(folder, *tasks):
    """A dozen examples for every split of these tasks."""
    for name in tasks:
        task = TASKS[name]
        for split in task.splits.values():
            examples = [
                Example(
                    f"the {a}", f"a {b}", 5.0 * (a == b) if task.form.classes is None else a < b
                )
                for a in WORDS[:4]
                for b in WORDS[1:4]
            ]
            write_split(folder, name, split.files[0], examples)


def write_own_task(folder):
    """A user's own sentences and labels, with a header."""
    folder.mkdir()
    lines = [f"the {word} is here\t{'short' if len(word) < 5 else 'long'}" for word in WORDS]
    lines.append("a happy farmer is here\tlong")
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")


def write_minimal_pairs(file):
    """In BLiMP's format."""
    pair = {"sentence_good": "the girls see.", "sentence_bad": "the girls sees.", "UID": "verbs"}
    file.write_bytes(gzip.compress(json.dumps(pair).encode()))


def write_public_encoder(folder, kind):
    """A small encoder with random weights in Hugging Face's layout."""
    public_encoders.theirs(kind).save_pretrained(folder)
    names = KINDS[kind]
    special = [names.unk, names.pad, names.cls, names.sep, names.mask]
    (folder / "vocab.txt").write_text("\n".join([*special, "the", "a", *WORDS]))


def write_official_checkpoint(file):
    """As the official trainer saves one."""
    torch_checkpoint(file, encoder_attention_heads=4, encoder_normalize_before=False)
