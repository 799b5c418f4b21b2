"""Convert a released TUPE checkpoint to a model folder (safetensors and JSON).

  tupe import-fairseq checkpoint_best.pt tupe_r_base/
  tupe import-fairseq exported/checkpoint.pt tupe_r/ --vocabulary=exported/vocabulary.model

The number of attention heads is read from the checkpoint; a bare state dict needs --num_heads.

--vocabulary is for models that were trained or exported here. With it, the official token ids of
`tupe export --format=fairseq` are converted to ours; without it the model keeps the official ids.
The official models use the Moses tokenizer and fastBPE, which are not included: imported, they can
be analyzed (`tupe analyze`, position_bias() and module of tupe_jax.load) and exported, but they
read no texts.
"""

import argparse

from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import storage_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint", type=storage_path, help="a .pt file (needs PyTorch) or an .npz file"
    )
    parser.add_argument("out", type=storage_path, help="the folder to write; must not exist")
    parser.add_argument("--num_heads", type=int, help="attention heads, if not in the file")
    parser.add_argument("--pad_id", type=int, help="the padding token (default: 1)")
    parser.add_argument(
        "--pre_layer_norm", action="store_true", default=None, help="if not in the file"
    )
    parser.add_argument(
        "--vocabulary", type=storage_path, help="the SentencePiece file of the model"
    )


def run(arguments: argparse.Namespace) -> None:
    from tupe_jax.inference.loading import load_tokenizer
    from tupe_jax.inference.model_card import save_model
    from tupe_jax.inference.trained_model import TrainedModel
    from tupe_jax.interop import fairseq, fairseq_checkpoint, official_tokens
    from tupe_jax.interop.model_folder import ModelMetadata

    released = fairseq_checkpoint.read_checkpoint(arguments.checkpoint)
    num_heads = released.num_heads if arguments.num_heads is None else arguments.num_heads
    if num_heads is None:
        raise UserError(
            f"{arguments.checkpoint} does not contain the number of attention heads; "
            "add --num_heads=N"
        )
    pad_id = released.pad_id if arguments.pad_id is None else arguments.pad_id
    pad_id = official_tokens.OFFICIAL_PAD_ID if pad_id is None else pad_id
    state = released.state
    tokenizer = None if arguments.vocabulary is None else load_tokenizer(arguments.vocabulary)
    if tokenizer and official_tokens.has_official_ids(state, pad_id, tokenizer):
        state, pad_id = official_tokens.from_official(state), tokenizer.special.pad_id
    config, params = fairseq.params_from_state_dict(
        state,
        num_heads=num_heads,
        pad_id=pad_id,
        pre_layer_norm=bool(arguments.pre_layer_norm or released.pre_layer_norm),
    )
    metadata = ModelMetadata(
        origin=f"{arguments.checkpoint.name}, a checkpoint of the official form"
    )
    save_model(TrainedModel(arguments.out, config, params, tokenizer, metadata), arguments.out)
    name = "TUPE-R" if config.position.relative == "t5" else "TUPE-A"
    print(
        f"{arguments.out}: {name}, {config.num_layers} layers, {config.hidden_size} wide, "
        f"{config.num_heads} heads, {config.vocab_size} tokens, "
        f"up to {config.position.max_length} positions"
    )
