"""`tupe analyze`: one checkpoint in, a report, numbers and plots out."""

import csv
import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from matplotlib.image import imread

from tests.lab.conftest import PIECES
from tests.lab.snli_lines import snli_line
from tests.model.helpers import save_folder, small_config, spread_model, with_position
from tupe_jax import cli
from tupe_jax.checkpointing.manager import Checkpoints
from tupe_jax.config.schema import CheckpointConfig, Config, DataConfig
from tupe_jax.data.labelled.glue import THREE_WAY
from tupe_jax.interop.model_folder import HeadMetadata, ModelMetadata
from tupe_jax.lab import METRICS
from tupe_jax.lab.analysis import builtin_sequences
from tupe_jax.tokenizers.sentencepiece import CLS_ID, SEP_ID

LENGTH = 24


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    step: Any
    params: Any
    ema: Any


@pytest.fixture(scope="module")
def analysed(vocabulary_file, tmp_path_factory):
    """BERT-R, which has all there is to look at: a bias, and positions at the input."""
    folder = tmp_path_factory.mktemp("analysed")
    config = with_position(small_config("bert_r", vocab_size=PIECES), max_length=LENGTH)
    config = dataclasses.replace(config, num_layers=2, dtype="bfloat16")
    params = nnx.state(spread_model(config), nnx.Param)
    checkpoints = Checkpoints(folder / "checkpoints", CheckpointConfig(every=1))
    checkpoints.save(
        7,
        State(np.int32(7), params, None),
        data={},
        config=dataclasses.asdict(Config(model=config, data=DataConfig(length=LENGTH))),
        vocabulary=vocabulary_file.read_bytes(),
    )
    checkpoints.close()
    pairs = folder / "pairs.jsonl"
    lines = [
        {"sentence_good": f"The cow saw {n} horses.", "sentence_bad": f"Saw the cow {n}.", "UID": u}
        for u in ("first", "second")
        for n in range(5)
    ]
    pairs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = [f"--out={folder}/out", "--words=3", f"--pairs={pairs}", "--limit=4"]
    arguments.append("--lengths=24,36")
    assert cli.main(["analyze", str(folder), *arguments]) == 0
    return folder


def test_the_report_names_what_was_measured(analysed):
    text = (analysed / "out/report.txt").read_text()
    assert f"{analysed}, step 7" in text
    assert f"n = {LENGTH - 1} positions" in text
    for expected in (*METRICS, "identical words", "global", "word-position", "sensitivity"):
        assert expected.replace("_", " ") in text
    assert max(map(len, text.split("\n")[1:])) <= 100


def test_all_numbers_are_in_the_json(analysed):
    found = json.loads((analysed / "out/analysis.json").read_text())
    assert set(found["position_only"]) == {"bias", "identical words"}
    assert len(found["position_only"]["bias"]["heads"]) == 4
    assert len(found["position_only"]["identical words"]["heads"]) == 2 * 4
    assert len(found["position_only"]["identical words"]["words"]) == 3
    assert set(found["position_only"]["bias"]["of_mean"]) == set(METRICS)
    assert "min-max scaled" in found["metrics"]["symmetry"]
    assert 0 < found["four_terms"]["mixed_share"][0] < 1
    assert found["minimal_pairs"]["first"]["count"] == 4
    assert found["minimal_pairs"]["all"]["accuracy"]["kind"] == "wilson"
    assert found["order"]["sensitivity"]["estimate"] > 0.01


def test_longer_inputs_have_their_loss_with_each_rule(analysed):
    found = json.loads((analysed / "out/analysis.json").read_text())["lengths"]
    assert [(score["length"], score["rule"]) for score in found] == [
        (24, "as_is"),
        (36, "interpolated"),  # the table ends at 24
        (36, "last_row"),
    ]
    text = (analysed / "out/report.txt").read_text()
    for score in found:
        assert 1 < score["loss"] < 100
        assert f"{score['loss']:.3f}" in text


def test_every_head_is_a_line_of_the_csv(analysed):
    with (analysed / "out/heads.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["source"], r["layer"], r["head"]) for r in rows[:5]] == [
        *(("bias", "", str(head)) for head in range(1, 5)),
        ("identical words", "1", "1"),
    ]
    assert len(rows) == 4 + 8
    assert all(0 < float(row["locality"]) < 1 for row in rows)


def test_the_matrices_are_drawn(analysed):
    plots = sorted((analysed / "out").glob("*.png"))
    names = ["four_terms", "lengths", "positions_bias", "positions_identical_words"]
    assert [plot.stem for plot in plots] == names
    for plot in plots:
        assert imread(plot).std() > 0.05


def test_a_model_without_an_nli_head_has_no_probes_and_the_report_says_why(analysed):
    reason = "the model is not fine-tuned; probes need fine-tuning on mnli or snli or builtin_nli"
    assert (analysed / "out/report.txt").read_text().endswith(f"\n\nNo probes: {reason}\n")
    assert json.loads((analysed / "out/analysis.json").read_text())["probes"] == reason


@pytest.fixture(scope="module")
def finetuned(vocabulary_file, tmp_path_factory):
    """As `tupe finetune` leaves it, with rows that hold half of the built-in pairs."""
    folder = tmp_path_factory.mktemp("finetuned")
    config = with_position(small_config("bert_a", vocab_size=PIECES, num_layers=1), max_length=99)
    model = spread_model(config, heads={"builtin_nli": 3})
    metadata = ModelMetadata(heads={"builtin_nli": HeadMetadata(THREE_WAY, texts=2, length=48)})
    save_folder(model, folder / "lr0.001-seed0/model", vocabulary_file.read_bytes(), metadata)
    return folder


def analysis_of(finetuned, out, *arguments):
    few = ["--words=1", "--length=8", f"--out={out}"]
    assert cli.main(["analyze", str(finetuned), *few, *arguments]) == 0
    return (out / "report.txt").read_text(), json.loads((out / "analysis.json").read_text())


@pytest.mark.slow
def test_a_fine_tuned_model_is_probed_with_built_in_pairs(finetuned, tmp_path, monkeypatch):
    monkeypatch.setattr("tupe_jax.commands.analyze.BUILTIN_PAIRS", 10)
    monkeypatch.setattr("tupe_jax.commands.analyze.BUILTIN_PROBE_PAIRS", 60)
    text, numbers = analysis_of(finetuned, tmp_path)
    probes = numbers["probes"]
    assert (probes["head"], probes["pairs"]) == ("builtin_nli", 60)
    assert 0 < probes["too_long"] < 60
    assert [result["name"] for result in probes["results"]][-2:] == ["Random", "Shuffle-SR"]
    for result in probes["results"]:
        before, after = result["original"]["estimate"], result["changed"]["estimate"]
        assert result["delta"]["estimate"] == pytest.approx(after - before)
        assert result["delta"]["low"] <= after - before <= result["delta"]["high"]
        assert f"{result['delta']['estimate']:.3f} (" in text
    assert f"changed in 60 pairs, head builtin_nli (95 %); {probes['too_long']} longer" in text
    assert max(map(len, text.split("\n")[1:])) <= 100
    assert imread(tmp_path / "probes.png").std() > 0.05


@pytest.mark.slow
def test_a_fine_tuned_model_is_probed_with_pairs_of_snli(finetuned, tmp_path, monkeypatch):
    monkeypatch.setattr("tupe_jax.commands.analyze.BUILTIN_PAIRS", 10)
    file = tmp_path / "dev.jsonl"
    file.write_text("".join(json.dumps(snli_line(label)) + "\n" for label in ("-", "neutral")))
    text, numbers = analysis_of(finetuned, tmp_path, f"--snli={file}")
    assert f"{finetuned}, probed with {file}\n" in text
    assert numbers["probes"]["pairs"] == 1
    assert [result["name"] for result in numbers["probes"]["results"]] == [
        "Shuffle-3",
        "Shuffle-6",
        "Random",
    ]


def test_several_models_are_lines_of_one_table(analysed, random_model, tmp_path, capsys):
    models = [str(analysed), str(random_model)]
    looks = ["--length=6", "--words=2", f"--out={tmp_path}"]
    assert cli.main(["analyze", *models, *looks]) == 0
    table = (tmp_path / "comparison.txt").read_text()
    assert table in capsys.readouterr().out
    assert [line.split()[0] for line in table.splitlines()[2:]] == models
    found = json.loads((tmp_path / "comparison.json").read_text())
    assert (found["length"], found["words"]) == (6, 2)
    assert [set(METRICS) <= set(model["measures"]) for model in found["models"]] == [True, True]


def test_text_for_the_four_terms_is_as_in_training(vocabulary):
    rows = builtin_sequences(vocabulary, 17)
    assert rows.shape == (32, 17)
    assert (rows[:, 0] == CLS_ID).all()
    assert (rows[:, 1:] != CLS_ID).all()
    assert (rows != 0).all()
    assert (rows == SEP_ID).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no such folder"),
        (["nowhere", "--limit=0"], "--limit=0 must be at least 1"),
        (["nowhere", "--pairs=missing.jsonl"], "missing.jsonl: no such file"),
        (["FOLDER", "--snli=x.jsonl"], "--snli=x.jsonl"),
        (["FOLDER", "--length=24"], "25 tokens is longer than position.max_length=24"),
        (["FOLDER", "--length=0"], "0 positions are too few"),
        (["FOLDER", "--out=FOLDER/pairs.jsonl/x"], "cannot create"),
        (["FOLDER", "--words=1000"], "1000 probing words"),
        (["nowhere", "--lengths=128,64"], "--lengths=128,64"),
        (["nowhere", "--lengths=x"], "--lengths=x"),
        (["nowhere", "--text=a.txt"], "--text=a.txt"),
    ],
)
def test_wrong_arguments_are_one_line(analysed, arguments, message, capsys, tmp_path):
    arguments = [word.replace("FOLDER", str(analysed)) for word in arguments]
    assert cli.main(["analyze", f"--out={tmp_path}", *arguments]) == cli.USER_ERROR_EXIT_CODE
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
