"""The table of GLUE tasks and SNLI fits the official files, TFDS, and the real data."""

import os
from pathlib import Path

import pytest

from tupe_jax.data.labelled.example import Example
from tupe_jax.data.labelled.glue import TASKS, find_task, load_file, load_split
from tupe_jax.utils.errors import UserError

# The header line (or, for CoLA, none) and one row, as in the official archives.
OFFICIAL = {
    "cola": ("", "gj04\t0\t*\tHim ran."),
    "sst2": ("sentence\tlabel", "a gem . \t1"),
    "mrpc": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "1\t70\t71\tA.\tB."),
    "stsb": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "0\tmain\tfile\t2012\t0001\tnone\tnone\tA.\tB.\t4.200",
    ),
    "qqp": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "1\t2\t3\tA?\tB?\t1"),
    "mnli": (
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
        "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
        "0\t1\t1n\tfiction\t(A)\t(B)\t(A)\t(B)\tA.\tB.\tneutral\tcontradiction",
    ),
    "qnli": ("index\tquestion\tsentence\tlabel", "0\tA?\tB.\tnot_entailment"),
    "rte": ("index\tsentence1\tsentence2\tlabel", "0\tA.\tB.\tentailment"),
    "wnli": ("index\tsentence1\tsentence2\tlabel", "0\tA.\tB.\t1"),
    "snli": (
        "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2\tcaptionID\tpairID\tlabel1\tlabel2",
        "neutral\t(A)\t(B)\t(A)\t(B)\tA.\tB.\t1.jpg\t1r\tneutral\t",
    ),
}
EXPECTED = {
    "cola": Example("Him ran.", None, 0),
    "sst2": Example("a gem . ", None, 1),
    "mrpc": Example("A.", "B.", 1),
    "stsb": Example("A.", "B.", 4.2),
    "qqp": Example("A?", "B?", 1),
    "mnli": Example("A.", "B.", 2),
    "qnli": Example("A?", "B.", 1),
    "rte": Example("A.", "B.", 0),
    "wnli": Example("A.", "B.", 1),
    "snli": Example("A.", "B.", 1),
}


@pytest.mark.parametrize("name", TASKS)
def test_official_files_are_read(tmp_path: Path, name: str) -> None:
    task = find_task(name)
    folder = tmp_path / task.folder
    folder.mkdir()
    text = "\n".join(line for line in OFFICIAL[name] if line)
    for split, names in task.splits.items():
        (folder / names.files[-1]).write_text(text)
        assert load_split(task, tmp_path, split) == [EXPECTED[name]]
        assert load_split(task, folder, split) == [EXPECTED[name]]


def test_there_are_nine_glue_tasks_and_snli() -> None:
    assert len(TASKS) == 10
    assert {name for name, task in TASKS.items() if not task.is_pair} == {"cola", "sst2"}
    assert {name for name, task in TASKS.items() if task.is_regression} == {"stsb"}


def test_snli_pairs_without_a_gold_label_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text("gold_label\tsentence1\tsentence2\n-\tA\tB\ncontradiction\tA\tC\n")
    assert load_split(find_task("snli"), tmp_path, "dev") == [Example("A", "C", 2)]


def test_a_subset_of_another_name_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "train_subset.tsv"
    path.write_text("index\tsentence1\tsentence2\tgold_label\n0\tA\tB\tneutral\n")
    assert load_file(find_task("mnli"), path) == [Example("A", "B", 1)]


def test_a_missing_file_names_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"dev\.tsv .*dev\.tsv\.gz .*RTE/"):
        load_split(find_task("rte"), tmp_path, "dev")


def test_unknown_tasks_and_splits_name_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'boolq'.*cola, .*snli"):
        find_task("boolq")
    with pytest.raises(UserError, match=r"mnli .*'dev'.* train, dev_matched"):
        load_split(find_task("mnli"), tmp_path, "dev")


REAL_FILES = [
    ("cola", "glue/CoLA/train.tsv", 8551),
    ("cola", "glue/CoLA/dev.tsv", 1043),
    ("sst2", "glue/SST-2/train.tsv.gz", 67349),
    ("sst2", "glue/SST-2/dev.tsv", 872),
    ("mrpc", "glue/MRPC/train.tsv", 3668),
    ("mrpc", "glue/MRPC/dev.tsv", 408),
    ("mrpc", "glue/MRPC/test.tsv", 1725),
    ("stsb", "glue/STS-B/train.tsv", 5749),
    ("stsb", "glue/STS-B/dev.tsv", 1500),
    ("qqp", "glue/QQP/train_subset20000.tsv.gz", 20000),
    ("qqp", "glue/QQP/heldout3497_from_train.tsv.gz", 3497),
    ("mnli", "glue/MNLI/train_subset9888_noperiods.tsv.gz", 9888),
    ("mnli", "glue/MNLI/dev_matched.tsv.gz", 9815),
    ("qnli", "glue/QNLI/dev.tsv.gz", 5463),
    ("rte", "glue/RTE/train.tsv", 2490),
    ("rte", "glue/RTE/dev.tsv", 277),
    ("wnli", "glue/WNLI/train.tsv", 635),
    ("wnli", "glue/WNLI/dev.tsv", 71),
    ("snli", "snli/dev.tsv.gz", 9842),
    ("snli", "snli/test.tsv.gz", 9824),
    ("snli", "snli/counterfactual_train.tsv.gz", 8330),
    ("snli", "snli/counterfactual_dev.tsv.gz", 1000),
    ("snli", "snli/counterfactual_test.tsv.gz", 2000),
]


@pytest.mark.skipif("TUPE_SHARED_DATA" not in os.environ, reason="real files are not shipped")
@pytest.mark.parametrize(("name", "file", "rows"), REAL_FILES)
def test_real_files_have_all_their_rows(name: str, file: str, rows: int) -> None:
    assert len(load_file(find_task(name), Path(os.environ["TUPE_SHARED_DATA"]) / file)) == rows
