"""Weights in any number of files and of any type, older layouts, and configs that are refused."""

import copy
import json

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from tests.interop.hugging_face import public_encoders as public
from tupe_jax.interop.hugging_face.files import read_arrays
from tupe_jax.interop.hugging_face.importing import params_from_state_dict, read_folder
from tupe_jax.utils.errors import UserError


def parsed(kind, state, **changes):
    config = {**public.theirs(kind).config.to_dict(), **changes}
    return params_from_state_dict(config, state, sep_id=public.SEP)


def assert_same(ours, others):
    assert ours[0] == others[0]
    assert ours[1].keys() == others[1].keys()
    for path, array in ours[1].items():
        np.testing.assert_array_equal(array, others[1][path], err_msg=str(path))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shards", [1, 3])
def test_weights_of_every_type_in_one_file_or_several(tmp_path, dtype, shards):
    state = {name: tensor.to(dtype) for name, tensor in public.theirs("bert").state_dict().items()}
    names = sorted(state)
    index = {}
    for n in range(shards):
        file = (
            "model.safetensors" if shards == 1 else f"model-{n + 1:05}-of-{shards:05}.safetensors"
        )
        part = {name: state[name].clone() for name in names[n::shards]}
        safetensors.torch.save_file(part, tmp_path / file)
        index |= dict.fromkeys(part, file)
    if shards > 1:
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    rounded = {name: tensor.float().numpy() for name, tensor in state.items()}
    assert_same(parsed("bert", read_arrays(tmp_path)), parsed("bert", rounded))


def test_a_file_with_all_arrays_comes_before_several(tmp_path):
    """As in `transformers`; an index may remain from an earlier download."""
    model = public.theirs("bert")
    model.save_pretrained(tmp_path)
    part = {"bert.pooler.dense.bias": torch.zeros(32)}
    safetensors.torch.save_file(part, tmp_path / "part.safetensors", metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": dict.fromkeys(part, "part.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    theirs = type(model).from_pretrained(tmp_path)
    assert_same(parsed("bert", read_arrays(tmp_path)), parsed("bert", public.arrays(theirs)))
    assert_same(parsed("bert", read_arrays(tmp_path)), parsed("bert", public.arrays(model)))


def save(state, file):
    if file.suffix == ".bin":
        torch.save(state, file)
    else:
        safetensors.torch.save_file(state, file)


QUANTIZED = [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8]


@pytest.mark.parametrize("dtype", QUANTIZED, ids=str)
@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_quantized_weights_are_refused_by_array_and_type(tmp_path, file, dtype):
    name = "bert.encoder.layer.1.output.dense.weight"
    state = {n: tensor.clone() for n, tensor in public.theirs("bert").state_dict().items()}
    save({**state, name: state[name].to(dtype)}, tmp_path / file)
    words = rf"{name} is of type \w+: quantized weights are not supported"
    with pytest.raises(UserError, match=words) as raised:
        parsed("bert", read_arrays(tmp_path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_integers_that_are_no_weights_are_left_out(tmp_path, file):
    state = {n: tensor.clone() for n, tensor in public.theirs("bert").state_dict().items()}
    state["bert.embeddings.position_ids"] = torch.arange(24)
    save(state, tmp_path / file)
    assert_same(
        parsed("bert", read_arrays(tmp_path)),
        parsed("bert", public.arrays(public.theirs("bert"))),
    )


QKV = ("q_proj", "k_proj", "v_proj")
OLD_LAYOUTS = {
    "nomic_bert": {
        "embeddings.LayerNorm": "emb_ln",
        "layers.": "encoder.layers.",
        "self_attn.o_proj": "attn.out_proj",
        "self_attn.qkv_proj": "attn.Wqkv",
        "up_proj": "fc11",
        "gate_proj": "fc12",
        "down_proj": "fc2",
        "post_attention_layernorm": "norm1",
        "post_mlp_layernorm": "norm2",
    },
    "jina_embeddings_v3": {
        "embeddings.LayerNorm": "emb_ln",
        "layers.": "encoder.layers.",
        "self_attn.o_proj": "mixer.out_proj",
        "self_attn.qkv_proj": "mixer.Wqkv",
        "post_attention_layernorm": "norm1",
        "post_mlp_layernorm": "norm2",
    },
    "gte": {
        "gte.": "new.",
        "layers.": "encoder.layer.",
        "self_attn.o_proj": "attention.o_proj",
        "self_attn.qkv_proj": "attention.qkv_proj",
        "post_attention_layernorm": "attn_ln",
        "post_mlp_layernorm": "mlp_ln",
        "lm_head.layer_norm": "lm_head.norm",
    },
}
"""Parts of names, and what they were in files from before `transformers` had these types."""


def in_old_layout(kind):
    state = public.arrays(public.theirs(kind))
    for name in [name for name in state if ".q_proj." in name]:
        parts = [state.pop(name.replace("q_proj", part)) for part in QKV]
        state[name.replace("q_proj", "qkv_proj")] = np.concatenate(parts)
    if kind == "gte":
        for name in [name for name in state if ".up_proj." in name]:
            parts = [state.pop(name.replace("up_proj", part)) for part in ("up_proj", "gate_proj")]
            state[name.replace("up_proj", "up_gate_proj")] = np.concatenate(parts)
    old = {}
    for name, array in state.items():
        for current, former in OLD_LAYOUTS[kind].items():
            name = name.replace(current, former)
        old[name] = array
    return old


@pytest.mark.parametrize("kind", OLD_LAYOUTS)
def test_an_older_layout_holds_the_same(kind):
    old, model = in_old_layout(kind), public.theirs(kind)
    assert not any("q_proj" in name or "layernorm" in name for name in old)
    assert_same(parsed(kind, old), parsed(kind, public.arrays(model)))


def test_the_first_nomic_bert_with_a_head_had_the_prefix_of_bert():
    old = in_old_layout("nomic_bert")
    renamed = {name.replace("nomic_bert.", "bert."): array for name, array in old.items()}
    assert renamed.keys() != old.keys()
    assert_same(parsed("nomic_bert", renamed), parsed("nomic_bert", old))


@pytest.mark.slow
@pytest.mark.parametrize("kind", OLD_LAYOUTS)
def test_transformers_reads_that_layout_in_the_same_way(kind, tmp_path):
    model = public.theirs(kind)
    model.config.save_pretrained(tmp_path)
    old = {name: array.copy() for name, array in in_old_layout(kind).items()}
    safetensors.numpy.save_file(old, tmp_path / "model.safetensors", metadata={"format": "pt"})
    back = type(model).from_pretrained(tmp_path)
    for name, array in public.arrays(model).items():
        np.testing.assert_array_equal(back.state_dict()[name].numpy(), array, err_msg=name)


def test_settings_of_nomic_bert_by_their_former_names():
    current = public.theirs("nomic_bert").config
    former = {
        "model_type": "nomic_bert",
        "auto_map": {"AutoModel": "modeling_hf_nomic_bert.NomicBertModel"},
        "activation_function": "swiglu",
        "n_embd": 32,
        "n_head": 4,
        "n_layer": 2,
        "n_inner": 48,
        "n_positions": 24,
        "vocab_size": 60,
        "type_vocab_size": 2,
        "layer_norm_epsilon": 1e-12,
        "pad_token_id": public.PAD,
        "attn_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "qkv_proj_bias": False,
        "prenorm": False,
        "rotary_emb_base": 1000,
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
        "rotary_scaling_factor": None,
    }
    state = public.arrays(public.theirs("nomic_bert"))
    assert_same(
        params_from_state_dict(former, state, sep_id=public.SEP),
        params_from_state_dict(current.to_dict(), state, sep_id=public.SEP),
    )
    for name, value in (("rotary_scaling_factor", 2), ("prenorm", True), ("n_head", 0)):
        with pytest.raises(UserError, match=f"{name}={value}"):
            params_from_state_dict({**former, name: value}, state, sep_id=public.SEP)


SCALED = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0}
LINEAR = {"type": "linear", "rope_theta": 100.0, "factor": 4.0}  # a former name of rope_type
PLAIN = {"rope_type": "default", "rope_theta": 100.0}


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("bert", {"auto_map": {"AutoModel": "modeling_bert.JinaBertModel"}}, "auto_map"),
        ("gte", {"model_type": "new", "auto_map": {"AutoModel": "modeling.NewModel"}}, "auto_map"),
        ("roberta", {"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ("roberta", {"compression_config": {"format": "pack-quantized"}}, "compression_config"),
        ("eurobert", {"rope_parameters": SCALED}, "rope_parameters.*rope_type='yarn'"),
        ("eurobert", {"rope_parameters": LINEAR}, "rope_parameters.* type='linear'"),
        ("jina_embeddings_v3", {"rope_parameters": LINEAR}, "rope_parameters.* type='linear'"),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": LINEAR, "sliding_attention": PLAIN}},
            "rope_parameters.*full_attention.* type='linear'",
        ),
        ("gte", {"rope_parameters": {**PLAIN, "factor": 4.0}}, "rope_parameters.*factor=4.0"),
        (
            "modernbert",
            {"rope_parameters": {"sliding_attention": {**PLAIN, "attention_factor": 2.0}}},
            "rope_parameters.*sliding_attention.*attention_factor=2.0",
        ),
        ("modernbert", {"rope_parameters": PLAIN}, "rope_parameters.*rope_type=.*full_attention"),
        ("modernbert", {"rope_parameters": [1]}, r"rope_parameters=\[1\]"),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": 1.0}},
            "rope_parameters.*full_attention=1.0",
        ),
        ("gte", {"rope_scaling": {"type": "ntk", "factor": 8.0}}, "rope_scaling=.*ntk"),
        ("jina_embeddings_v3", {"rope_parameters": [1]}, r"rope_parameters=\[1\]"),
        ("eurobert", {"head_dim": 16}, "head_dim=16"),
        ("eurobert", {"num_key_value_heads": 3}, "num_attention_heads=4 .*num_key_value_heads=3"),
        ("esm", {"is_folding_model": True}, "is_folding_model=True"),
        ("esm", {"rope_theta": 5_000.0}, "rope_theta=5000.0 .*inv_freq"),
        ("esm", {"position_embedding_type": "relative_key"}, "position_embedding_type="),
        ("roformer", {"rotary_value": True}, "rotary_value=True"),
    ],
)
def test_unsupported_settings_are_named_in_one_line(kind, changes, words):
    config = {**public.theirs(kind).config.to_dict(), **changes}
    with pytest.raises(UserError, match=rf"^config\.json: .*{words}") as raised:
        params_from_state_dict(config, public.arrays(public.theirs(kind)), sep_id=public.SEP)
    assert "\n" not in str(raised.value)


PARTS = ("full_attention", "sliding_attention")
BASES = {"global_rope_theta": 90.0, "local_rope_theta": 70.0}
IN_ALL_LAYERS = ("eurobert", "nomic_bert", "gte", "jina_embeddings_v3")


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *((kind, {"rope_theta": 90.0}) for kind in IN_ALL_LAYERS),
        *((kind, {"rope_parameters": None}) for kind in (*IN_ALL_LAYERS, "modernbert")),
        ("eurobert", {"rope_parameters": {"type": "default", "rope_theta": 50.0}}),
        ("gte", {"rope_theta": 90.0, "rope_parameters": {**PLAIN, "rope_theta": 50.0}}),
        ("modernbert", BASES),
        ("modernbert", {**BASES, "rope_parameters": None}),
        ("modernbert", {**BASES, "rope_parameters": {"full_attention": PLAIN}}),
        ("modernbert", {**BASES, "rope_parameters": {"sliding_attention": PLAIN}}),
        ("esm", {"rope_parameters": {**PLAIN, "rope_theta": 50.0}}),
    ],
)
def test_rope_has_the_base_that_transformers_reads(kind, changes):
    """The default may be in `rope_parameters`, at the top level, or in the code."""
    without = {"rope_type": "default"}
    if kind == "modernbert":
        without = {part: dict(without) for part in PARTS}
    values = {**public.theirs(kind).config.to_dict(), "rope_parameters": without, **changes}
    options = parsed(kind, public.arrays(public.theirs(kind)), **values)[0].position.options
    theirs = type(public.theirs(kind))(public.MODELS[kind][1].from_dict(copy.deepcopy(values)))
    found = {name: a.numpy() for name, a in theirs.named_buffers() if name.endswith("inv_freq")}
    assert found
    for name, theirs_h in found.items():
        ours = "rope_local_base" if "sliding_attention" in name else "rope_base"
        ours_h = options[ours] ** (-np.arange(len(theirs_h)) / len(theirs_h))
        np.testing.assert_allclose(theirs_h, ours_h, rtol=1e-6, err_msg=name)


def test_a_model_with_its_own_code_is_refused_before_its_tokenizer_is_read(tmp_path):
    config = {"model_type": "new", "auto_map": {"AutoModel": "modeling.NewModel"}, "vocab_size": 9}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"auto_map"):
        read_folder(tmp_path)


@pytest.mark.parametrize("half", [True, False])
def test_frequencies_of_esm_have_the_precision_of_the_file(half):
    state = public.arrays(public.theirs("esm"))
    name = "esm.rotary_embeddings.inv_freq"
    assert state[name].dtype == np.float16
    if not half:
        state[name] = 10_000.0 ** -(np.arange(4) / 4)
    options = parsed("esm", state)[0].position.options
    assert options["rope_precision"] == ("float16" if half else "float32")
    # Before version 5 of transformers every layer had a copy.
    state["esm.encoder.layer.1.attention.self.rotary_embeddings.inv_freq"] = state.pop(name)
    assert parsed("esm", state)[0].position.options == options


def test_jina_is_read_without_its_task_adapters_and_this_is_said(tmp_path, monkeypatch):
    model = public.theirs("jina_embeddings_v3")
    model.save_pretrained(tmp_path)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "a", "<mask>"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    of = dict(zip(("cls", "pad", "sep", "unk", "mask"), [*pieces[:4], "<mask>"], strict=True))
    settings |= {f"{name}_token": piece for name, piece in of.items()}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    _, _, _, left_out = read_folder(tmp_path)
    assert left_out[-1].startswith("the task adapters")
