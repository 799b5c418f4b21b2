"""`tupe import-hf` converts a downloaded folder, or refuses it in one line."""

import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

import tupe_jax
from tests.interop.hugging_face import public_encoders as public
from tests.model.helpers import save_folder, small_config, spread_model
from tests.tokenizers.test_hugging_face import byte_level_bpe
from tupe_jax import cli
from tupe_jax.inference.fill_mask import encode_masked, fill_masks
from tupe_jax.inference.loading import load
from tupe_jax.interop.hugging_face import files, importing
from tupe_jax.interop.hugging_face.importing import params_from_state_dict
from tupe_jax.interop.hugging_face.tokenizer import read_tokenizer
from tupe_jax.lab.nli_pairs import builtin_pairs
from tupe_jax.lab.nli_probes import probe_nli
from tupe_jax.lab.position_attention import attention_among_identical_words, choose_words
from tupe_jax.utils.errors import UserError

PIECES = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "the", "boat"]


@pytest.fixture(scope="module")
def downloaded(tmp_path_factory):
    """A BERT with the heads of its pre-training, and that of a task, which we do not have."""
    folder = tmp_path_factory.mktemp("downloaded") / "bert"
    public.theirs("bert").save_pretrained(folder)
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    arrays |= {"classifier.weight": np.zeros((2, 32), np.float32)}
    safetensors.numpy.save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "vocab.txt").write_text("\n".join(PIECES))
    return folder


def test_a_folder_is_loaded_directly_and_after_import(downloaded, tmp_path, capsys):
    assert cli.main(["import-hf", str(downloaded), str(tmp_path / "ours")]) == 0
    said = capsys.readouterr().out
    assert "bert, 2 layers, 32 wide, 4 heads, 60 tokens" in said
    assert "left out: classifier.weight" in said
    card = (tmp_path / "ours/README.md").read_text()
    assert card.startswith("# ours\n")
    assert "It was imported from bert, a model of type bert." in card
    assert "tupe_jax.load('ours')\nmodel.fill_mask(\"a text" in card
    direct, imported = load(downloaded), load(tmp_path / "ours")
    assert direct.config == imported.config
    assert direct.fingerprint == imported.fingerprint
    for pretrained in (direct, imported):
        assert pretrained.tokenizer.encode("The boat ab") == [7, 8, 5, 6]
        assert pretrained.tokenizer.special.sep_id == public.SEP == pretrained.config.sep_id
        assert list(pretrained.tokenizer.ordinary_ids) == [5, 6, 7, 8]
        assert pretrained.tokenizer.decode([8]) == "boat"


def test_a_torch_file_holds_the_same(downloaded, tmp_path):
    shutil.copytree(downloaded, tmp_path / "old")
    (tmp_path / "old/model.safetensors").unlink()
    content = {**public.theirs("bert").state_dict(), "config": {"hidden_size": 32}}
    torch.save(content, tmp_path / "old/pytorch_model.bin")
    assert load(tmp_path / "old").fingerprint == load(downloaded).fingerprint


BUFFERS = ["embeddings.position_ids", "embeddings.token_type_ids"]
IDLE = "embeddings.position_embeddings.weight"
TASKS = ["classifier.weight", "classifier.out_proj.bias", "qa_outputs.weight", "score.weight"]
PUBLISHED = {
    "bert": (BUFFERS, []),
    "roberta": (BUFFERS, []),
    "electra": (BUFFERS, []),
    "albert": (BUFFERS, ["sop_classifier.classifier.weight"]),
    "mpnet": (BUFFERS, []),
    "deberta": ([*BUFFERS, IDLE], ["lm_predictions.lm_head.bias", "pooler.dense.weight"]),
    "deberta-v2": ([*BUFFERS, IDLE], ["lm_predictions.lm_head.dense.weight"]),
    "deberta-v3": ([*BUFFERS, IDLE], ["mask_predictions.dense.weight"]),
    "xlnet": (["mask_emb"], ["start_logits.dense.weight", "logits_proj.bias"]),
    "distilbert": ([], ["pre_classifier.weight"]),
    "roformer": (BUFFERS, ["pooler.dense.weight"]),
    "modernbert": ([], []),
    "esm": ([*BUFFERS, IDLE], []),
    "eurobert": ([], ["dense.weight"]),
    "nomic_bert": (BUFFERS, []),
    "jina_embeddings_v3": (BUFFERS, []),
    "gte": (BUFFERS, []),
    **dict.fromkeys(("xlm-roberta", "camembert", "roberta-prelayernorm"), (BUFFERS, [])),
    **dict.fromkeys(("ernie", "megatron-bert", "rembert"), (BUFFERS, [])),
}
"""Arrays that public files have beside the model: in the encoder, and in heads of others."""


OTHERS_OWN = (
    "sop_cl",
    "lm_loss",
    "roformer.encoder.embed_positions",
    "esm.contact_head",
    "esm.rotary_embeddings",
    "the task adapters",  # of Jina's, in other files
)
"""Arrays of the models of `transformers` that we have not."""


def left_out_of(state, config, monkeypatch):
    monkeypatch.setattr(files, "require_config", lambda _: config.to_dict())
    monkeypatch.setattr(files, "read_arrays", lambda _: state)
    tokenizer = SimpleNamespace(special=SimpleNamespace(sep_id=public.SEP))
    monkeypatch.setattr(importing, "read_tokenizer", lambda *_: tokenizer)
    return importing.read_folder(Path("downloaded"))[-1]


@pytest.mark.parametrize("kind", PUBLISHED)
def test_other_arrays_of_public_files_are_left_out_and_listed(kind, monkeypatch):
    model = public.theirs(kind)
    prefix, (inner, heads) = f"{model.base_model_prefix}.", PUBLISHED[kind]
    beside = sorted([*(f"{prefix}{name}" for name in inner), *heads, *TASKS])
    own = {n: a for n, a in public.arrays(model).items() if n not in beside}
    state = {**own, **{name: np.zeros((24, 32), np.float32) for name in beside}}
    unused = left_out_of(state, model.config, monkeypatch)
    assert set(beside) <= set(unused)
    others = set(unused) - set(beside)
    assert all(name.startswith(OTHERS_OWN) for name in others), others


CLASSIFIERS_OF_MODERNBERT = [
    transformers.ModernBertForSequenceClassification,
    transformers.ModernBertForTokenClassification,
    transformers.ModernBertForQuestionAnswering,
]


@pytest.mark.parametrize("make", CLASSIFIERS_OF_MODERNBERT)
def test_the_encoder_of_a_classifier_of_modernbert_is_read(make, monkeypatch):
    """Its head has the names of the masked LM head."""
    model = make(public.MODELS["modernbert"][1])
    config, state = model.config.to_dict(), public.arrays(model)
    inside = {n: a for n, a in state.items() if n.startswith("model.")}
    unused = left_out_of(state, model.config, monkeypatch)
    assert {"head.dense.weight", "head.norm.weight"} < set(unused) == state.keys() - inside.keys()
    ours, params = params_from_state_dict(config, state, sep_id=3)
    alone, params_alone = params_from_state_dict(config, inside, sep_id=3)
    assert ours == alone
    assert not ours.masked_word_head
    for path, array in params.items():
        np.testing.assert_array_equal(array, params_alone[path])


def test_a_masked_lm_head_of_modernbert_without_its_bias_is_refused():
    model = public.theirs("modernbert")
    config = {**model.config.to_dict(), "architectures": ["ModernBertForMaskedLM"]}
    state = {n: a for n, a in public.arrays(model).items() if not n.startswith("decoder")}
    with pytest.raises(UserError, match=r"lacks decoder\.bias"):
        params_from_state_dict(config, state, sep_id=3)
    with pytest.raises(UserError, match="decoder_bias=False"):
        params_from_state_dict({**config, "decoder_bias": False}, state, sep_id=3)


@pytest.mark.parametrize(
    ("kind", "prefix"), [("roberta", "roberta."), ("mpnet", "mpnet."), ("albert", "albert.")]
)
def test_the_pooler_of_public_files_is_used(kind, prefix):
    model, name = public.theirs(kind), "pooler" if kind == "albert" else "pooler.dense"
    state = {
        **public.arrays(model),
        f"{prefix}{name}.weight": np.ones((32, 32), np.float32),
        f"{prefix}{name}.bias": np.ones(32, np.float32),
    }
    _, params = params_from_state_dict(model.config.to_dict(), state, sep_id=3)
    assert (params["pooler", "dense", "kernel"] == 1).all()


def test_loading_a_folder_lists_the_arrays_that_are_left_out(downloaded, caplog):
    load(downloaded)
    assert caplog.messages == [f"{downloaded}: left out classifier.weight"]


SIZES_THAT_DO_NOT_FIT = [
    ("xlnet", {"d_model": 48, "d_head": 12}, {}, "layer.0.rel_attn.q"),
    ("deberta", {"hidden_size": 64}, {}, "in_proj.weight"),
    (
        "deberta-v3",
        {},
        {"deberta.encoder.LayerNorm.weight": np.ones(16)},
        "encoder.LayerNorm.weight",
    ),
    ("bert", {}, {"bert.pooler.dense.bias": np.ones(16)}, "pooler.dense.bias"),
]


@pytest.mark.parametrize(("kind", "changes", "arrays", "words"), SIZES_THAT_DO_NOT_FIT)
def test_an_array_that_does_not_fit_the_sizes_is_named(kind, changes, arrays, words):
    model = public.theirs(kind)
    config, state = model.config.to_dict(), public.arrays(model)
    with pytest.raises(UserError, match=rf"^config\.json: .*{re.escape(words)}"):
        params_from_state_dict({**config, **changes}, {**state, **arrays}, sep_id=3)


@pytest.mark.parametrize("bias", ["q_bias", "v_bias"])
def test_a_missing_bias_of_deberta_is_refused(bias):
    model = public.theirs("deberta")
    state = {n: a for n, a in public.arrays(model).items() if not n.endswith(bias)}
    with pytest.raises(UserError, match=rf"encoder\.layer\.0\.attention\.self\.{bias}"):
        params_from_state_dict(model.config.to_dict(), state, sep_id=3)


def test_word_embeddings_may_have_the_name_of_the_tied_array():
    model = public.theirs("roberta")
    config, state = model.config.to_dict(), public.arrays(model)
    _, whole = params_from_state_dict(config, state, sep_id=3)
    del state["roberta.embeddings.word_embeddings.weight"]
    assert "lm_head.decoder.weight" in state
    _, params = params_from_state_dict(config, state, sep_id=3)
    for path, array in params.items():
        np.testing.assert_array_equal(array, whole[path])


def test_load_reads_both_layouts(downloaded, tmp_path):
    assert cli.main(["import-hf", str(downloaded), str(tmp_path / "ours")]) == 0
    for folder in (downloaded, tmp_path / "ours"):
        assert tupe_jax.load(folder).tokenizer.encode("The boat") == [7, 8]


def test_an_imported_bert_is_exported_again(downloaded, tmp_path, monkeypatch):
    out = tmp_path / "back"
    assert cli.main(["export", str(downloaded), str(out), "--format=hf"]) == 0
    assert sorted(file.name for file in out.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert load(out).fingerprint == load(downloaded).fingerprint
    assert transformers.BertTokenizer.from_pretrained(out).tokenize("The boat") == ["the", "boat"]
    (_, shown, *_) = (out / "README.md").read_text().split("```")
    monkeypatch.chdir(tmp_path)
    card = {}
    exec(shown.removeprefix("python"), card)
    assert isinstance(card["model"], transformers.BertForPreTraining)


def test_a_cased_tokenizer_stays_cased(downloaded, tmp_path):
    cased, out = tmp_path / "cased", tmp_path / "back"
    shutil.copytree(downloaded, cased)
    pieces = ["[U]", *PIECES[1:], "The", "é", "x漢"]
    (cased / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    settings = {"do_lower_case": False, "tokenize_chinese_chars": False, "unk_token": "[U]"}
    (cased / "tokenizer_config.json").write_text(json.dumps(settings))
    assert cli.main(["export", str(cased), str(out), "--format=hf"]) == 0
    text = "The the é x漢 Ä [MASK]"
    expected = [9, 7, 10, 11, 0, 4]
    assert load(cased).tokenizer.encode(text) == expected
    for kind in (transformers.BertTokenizer, transformers.AutoTokenizer):
        theirs = kind.from_pretrained(out)
        assert theirs.encode(text, add_special_tokens=False) == expected
        assert theirs.unk_token == "[U]"
    assert load(out).tokenizer.content == load(cased).tokenizer.content


def test_models_are_compared_side_by_side(downloaded, tmp_path, capsys):
    other = tmp_path / "other"
    save_folder(
        spread_model(load(downloaded).config),
        other,
        load(downloaded).tokenizer.content,
    )
    arguments = ["--length=9", "--words=3", f"--out={tmp_path / 'out'}"]
    assert cli.main(["analyze", str(downloaded), str(other), *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "n = 9 positions" in lines[0]
    assert lines[1].split()[:5] == ["model", "positions", "layers", "symmetry", "locality"]
    found = json.loads((tmp_path / "out/comparison.json").read_text())
    for line, model in zip(lines[2:4], found["models"], strict=True):
        name, encoding, layers, symmetry, locality, *_ = line.split()
        assert (name, encoding, layers) == (model["name"], "added", "2")
        assert float(symmetry) == round(100 * model["measures"]["symmetry"], 1)
        assert float(locality) == round(100 * model["measures"]["locality"], 1)
    ours = load(downloaded)
    words = choose_words(ours.tokenizer.ordinary_ids, 3)
    expected = attention_among_identical_words(ours.module, 9, words).measures_of_mean()
    assert found["models"][0]["measures"] == expected
    assert found["models"][1]["measures"] != expected


@pytest.mark.slow
def test_an_imported_model_is_fine_tuned_on_nli_and_probed(downloaded, tmp_path):
    command = (
        f"tupe finetune --checkpoint={downloaded.name} --task=builtin_nli --train_examples=6 "
        "--dev_examples=6 --learning_rates=1e-09 --seeds=3 --config=finetune "
        "--config.length=24 --config.epochs=1 --config.evaluations_per_epoch=1"
    )
    asked = command.replace(downloaded.name, str(downloaded), 1).split()[1:]
    assert cli.main([*asked, f"--workdir={tmp_path}"]) == 0
    card = (tmp_path / "lr1e-09-seed3/model/README.md").read_text()
    assert f"```bash\n{command}\n```" in card
    assert "It was imported from bert, a model of type bert." in card
    tuned, imported = load(tmp_path), load(downloaded)
    assert tuned.classification_heads == {"builtin_nli": 3}
    assert tuned.tokenizer.encode("The boat") == [7, 8]
    for path, array in imported.params.items():
        np.testing.assert_allclose(tuned.params[path], array, atol=1e-6, err_msg=str(path))
    probes = probe_nli(tuned.module, tuned.tokenizer, builtin_pairs("test", 40), length=24)
    assert {"Shuffle-3", "Random"} <= {result.name for result in probes.results}


def test_without_the_tokenizers_library_the_extra_is_named(downloaded, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UserError, match=r"pip install 'tupe_jax\[hugging-face\]'"):
        load(downloaded)


def test_masks_are_filled_by_an_imported_model(downloaded):
    pretrained = load(downloaded)
    tokenizer = pretrained.tokenizer
    assert encode_masked(tokenizer, "the [MASK] boat") == [7, 4, 8]
    (filled,) = fill_masks(pretrained.module, tokenizer, ["the [MASK]"], top_k=9)
    guesses = {(guess.piece, guess.starts_word) for guess in filled.guesses[0]}
    assert guesses == {("a", True), ("b", False), ("the", True), ("boat", True)}


def test_a_continuation_is_marked_even_at_the_start_of_a_text(downloaded):
    pretrained = load(downloaded)
    (filled,) = fill_masks(pretrained.module, pretrained.tokenizer, ["[MASK] boat"], top_k=9)
    assert {str(g).split()[0] for g in filled.guesses[0]} == {"a", "##b", "the", "boat"}


def test_a_text_of_special_tokens_is_refused(downloaded):
    """Nothing to take the mean of."""
    model = tupe_jax.load(downloaded)
    for text in ("[SEP]", "[CLS] [PAD][SEP]"):
        with pytest.raises(UserError, match="has no words"):
            model.encode(text)


def test_byte_level_guesses_have_no_leading_space(tmp_path):
    byte_level_bpe(tmp_path, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    vocabulary = read_tokenizer(tmp_path, "roberta", 400)
    special = vocabulary.special
    ids = {"pad_id": special.pad_id, "sep_id": special.sep_id}
    model = spread_model(small_config("bert_a", vocab_size=400, num_layers=1, **ids))
    (filled,) = fill_masks(model, vocabulary, ['[MASK] fox and [MASK]. "[MASK]'], top_k=400)
    first, middle, quoted = ({g.id: g for g in guesses} for guesses in filled.guesses)
    marked, unmarked = vocabulary.encode("the the")[-1], vocabulary.encode("t")[0]
    full_stop = vocabulary.encode(".")[0]
    assert vocabulary.decode([unmarked]) == "t"
    assert not any(guess.piece.startswith(" ") for guess in middle.values())
    assert [g[marked].starts_word for g in (first, middle, quoted)] == [True, True, True]
    assert [g[unmarked].starts_word for g in (first, middle, quoted)] == [True, False, True]
    assert middle[full_stop].starts_word
    assert str(middle[unmarked]).startswith("##t ")
    assert not filled.filled.startswith(" ")


def test_ordinary_ids_are_computed_once(downloaded):
    """It takes a sixth of a second for 50,000, and each [MASK] asks."""
    tokenizer = load(downloaded).tokenizer
    assert tokenizer.ordinary_ids is tokenizer.ordinary_ids


def test_array_names_from_before_2019_are_read():
    model = public.theirs("bert")
    state = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): array
        for name, array in public.arrays(model).items()
    }
    assert sum("gamma" in name for name in state) == 6
    _, new = params_from_state_dict(model.config.to_dict(), public.arrays(model), sep_id=3)
    _, old = params_from_state_dict(model.config.to_dict(), state, sep_id=3)
    for ours, others in zip(new.values(), old.values(), strict=True):
        np.testing.assert_array_equal(ours, others)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "bart"}, "model_type .*config.json 'bart'.* bert"),
        ({"hidden_act": "mish"}, "config.json: hidden_act='mish' .*'gelu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"is_decoder": True}, "is_decoder=True .*False"),
        ({"hidden_size": None}, "config.json.*'hidden_size'"),
        ({"num_attention_heads": "four"}, "num_attention_heads='four'"),
        ({"hidden_act": ["gelu"]}, r"hidden_act=\['gelu'\]"),
        ({"layer_norm_eps": "tiny"}, "layer_norm_eps='tiny'"),
        ({"intermediate_size": 50}, r"\[48, 32\].* \[50, 32\]"),
        ({"num_hidden_layers": 3}, "encoder.layer.2.attention.output.LayerNorm.bias"),
        ({"vocab_size": 8}, r"tokenizer .*\b9 .*\b8\b"),
        ({"pad_token_id": 0}, r"\b0\b.* \[PAD\] .*\b1\b"),
    ],
)
def test_unsupported_settings_are_named(downloaded, tmp_path, changes, words):
    shutil.copytree(downloaded, tmp_path / "odd")
    config = json.loads((downloaded / "config.json").read_text())
    (tmp_path / "odd/config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(UserError, match=words):
        load(tmp_path / "odd")


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("tokenizer_config.json", ["a"], "tokenizer_config.json"),
        ("tokenizer_config.json", {"do_lower_case": "no"}, "do_lower_case.*'no'"),
        ("model.safetensors.index.json", {"weight_map": 3}, "index.json .*weight_map"),
        ("model.safetensors.index.json", {"weight_map": {"a": 1}}, "index.json .*weight_map"),
    ],
)
def test_other_malformed_files_are_named(downloaded, tmp_path, file, content, words):
    shutil.copytree(downloaded, tmp_path / "odd")
    (tmp_path / "odd" / file).write_text(json.dumps(content))
    if file.endswith("index.json"):  # which is read if there is no file with all arrays
        (tmp_path / "odd/model.safetensors").unlink()
    with pytest.raises(UserError, match=words):
        load(tmp_path / "odd")


def test_a_folder_without_a_public_model_is_refused_before_writing(downloaded, tmp_path, capsys):
    def told(folder):
        out = tmp_path / "never"
        assert cli.main(["import-hf", str(folder), str(out)]) == cli.USER_ERROR_EXIT_CODE
        assert not out.exists()
        return capsys.readouterr().err

    assert "no folder" in told(tmp_path / "gone")
    assert "has no config.json" in told(tmp_path)
    config = tmp_path / "config.json"
    config.write_text("{")
    assert "config.json cannot be read: Expecting property name" in told(tmp_path)
    config.write_text('{"hidden_size": 3}')
    assert "config.json has no model_type" in told(tmp_path)
    config.write_text('{"model": {}, "classification_heads": {}}')
    assert "is a tupe_jax model folder already" in told(tmp_path)
    shutil.copytree(downloaded, tmp_path / "other_pad")
    settings = json.loads((downloaded / "config.json").read_text())
    (tmp_path / "other_pad/config.json").write_text(json.dumps({**settings, "pad_token_id": 0}))
    assert "pads with token 0, but [PAD] is token 1" in told(tmp_path / "other_pad")


def test_wrong_arrays_and_missing_files_are_named(downloaded, tmp_path):
    shutil.copytree(downloaded, tmp_path / "odd")
    weights = tmp_path / "odd/model.safetensors"
    arrays = safetensors.numpy.load_file(weights)
    safetensors.numpy.save_file({**arrays, "bert.adapter.weight": np.zeros(3)}, weights)
    with pytest.raises(UserError, match=r"/odd/config\.json: .*adapter\.weight"):
        load(tmp_path / "odd")
    untied = arrays["bert.embeddings.word_embeddings.weight"] + 1
    safetensors.numpy.save_file({**arrays, "cls.predictions.decoder.weight": untied}, weights)
    with pytest.raises(UserError, match=r"/odd/config\.json: .*decoder\.weight .*embeddings"):
        load(tmp_path / "odd")
    weights.write_bytes(weights.read_bytes()[:99])
    with pytest.raises(UserError, match=r"model\.safetensors"):
        load(tmp_path / "odd")
    weights.unlink()
    with pytest.raises(UserError, match=r"model\.safetensors .*pytorch"):
        load(tmp_path / "odd")
    (tmp_path / "odd/vocab.txt").unlink()
    with pytest.raises(UserError, match=r"tokenizer\.json, vocab\.txt"):
        load(tmp_path / "odd")
