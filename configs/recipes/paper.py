"""The TUPE paper's pre-training: a base model, 1 M steps of 256 sequences of 512 tokens.

Numbers are those of the paper (Ke, He and Liu, ICLR 2021, https://arxiv.org/abs/2006.15595).
"Official code" marks what the paper does not say and its released code does. docs/pretraining.md
lists what still differs from the paper's run. Each `config.<section>.<name>` below can be
overridden on the command line as `--config.<section>.<name>=<value>`.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()

    # The encoder.
    config.model = ConfigDict()
    config.model.vocab_size = 32_768  # BPE tokens
    config.model.hidden_size = 768
    config.model.num_layers = 12
    config.model.num_heads = 12  # of 64 features
    config.model.mlp_size = 3_072  # 4 x hidden_size
    config.model.activation = "gelu"  # the exact one, with erf
    config.model.pre_layer_norm = False  # LayerNorm after each sub-layer, as in BERT
    config.model.layer_norm_eps = 1e-5  # official code
    config.model.dropout = 0.1  # of hidden states
    config.model.attention_dropout = 0.1  # of attention weights
    config.model.classifier_dropout = 0.1  # of the head that fine-tuning adds
    config.model.dtype = "bfloat16"  # of activations; parameters are float32. The paper: float16
    config.model.pad_id = 0
    config.model.sep_id = 2
    # How it is computed; the results are the same up to rounding.
    config.model.attention_implementation = "auto"  # a fused kernel where one can run
    config.model.layer_loop = "auto"  # unrolled on CPU, a scan over layers elsewhere
    config.model.remat = "none"  # repeat no matrix product in the backward pass
    # Parts of ALBERT, BERT, ELECTRA, ESM and XLNet: for imported models and other objectives.
    config.model.embedding_size = 0  # 0: as hidden_size
    config.model.embedding_norm = True  # LayerNorm on the embeddings, as in BERT and TUPE
    config.model.segments = 0  # no segment embeddings
    config.model.segment_attention = False
    config.model.cls_last = False
    config.model.share_layers = False
    config.model.mask_dropout = 0.0  # 0: [MASK] has an embedding like other tokens
    config.model.mask_id = 3  # used with mask_dropout only
    config.model.masked_word_head = True
    config.model.replaced_token_head = False
    config.model.next_sentence_head = False
    config.model.pooler = False
    # Parts of modern blocks, used by configs/modern_rope.py.
    config.model.norm = "layer_norm"
    config.model.norm_bias = True
    config.model.first_attention_norm = True
    config.model.linear_bias = True
    config.model.gated_mlp = False
    config.model.query_key_norm = False
    config.model.attention_window = 0  # 0: all layers attend to all tokens
    config.model.attention_global_every = 3  # used with a window only
    config.model.masked_word_transform = True  # dense, GELU and norm before the output matrix
    config.model.output_embedding_size = 0  # 0: the output matrix is the token embedding (tied)

    # The positional encoding, here BERT's. Each config sets its own.
    config.position = ConfigDict()
    config.position.absolute = "added"  # learned, added to the token embedding
    config.position.relative = "none"
    config.position.untie_cls = False  # True: untie [CLS] from positions, as in TUPE
    config.position.max_length = 512  # rows of a table of absolute positions
    config.position.relative_bins = 32  # T5's buckets; official code
    config.position.max_distance = 128  # T5, Shaw, DeBERTa: all beyond count as this; official code
    config.position.decay_left = 0.5  # attenuated encodings: w of exp(-w d^2), left of the query
    config.position.decay_right = 0.5  # right of it; https://arxiv.org/abs/2310.12864 has 0.5
    config.position.attenuation_gain = 1.0  # factor of that bias; 1 as published
    config.position.options = ConfigDict()  # options of an encoding, by name; empty: their defaults

    # The text and how it becomes sequences of tokens.
    config.data = ConfigDict()
    # Wikipedia from TFDS, and books of your own: BookCorpus is no longer distributed.
    config.data.task = "wikipedia + text:data/books/*.txt.gz"
    config.data.cleaning = "all"  # every cleaning step of docs/data.md
    config.data.vocabulary = ""  # empty: train a tokenizer of model.vocab_size tokens
    config.data.prepared = ""  # empty: prepare the data in the work directory
    config.data.reader = "prepared"  # "live": tokenize while training, for small runs
    config.data.length = 512  # tokens, [CLS] included
    config.data.packing = "sentences"  # whole sentences, then padding; official code

    # Masked language modelling.
    config.objective = ConfigDict()
    config.objective.name = "masked_lm"
    config.objective.mask_rate = 0.15  # share of tokens to predict
    config.objective.mask_rule = "released"  # may choose [CLS] and [SEP], too; official code
    config.objective.mask_unit = "token"
    config.objective.mean_span = 3.0  # used by mask_unit = "span" only
    config.objective.replace_by_mask = 0.8  # of the chosen tokens; BERT's shares
    config.objective.replace_by_random = 0.1  # the remaining 0.1 stay unchanged
    # Used by name = "replaced_token" (ELECTRA) only.
    config.objective.generator_size = 0.25  # of the discriminator's hidden size, MLP and heads
    config.objective.generator_layers = 0  # 0: as many as the discriminator
    config.objective.generator_position = ""  # the name of an encoding; empty: the discriminator's
    config.objective.discriminator_weight = 50.0  # of its loss; the generator's has 1

    # Durations are steps ("500"), shares of the run ("6%"), "2 epochs" or "5000 examples".
    config.optimizer = ConfigDict()
    config.optimizer.name = "adam_released"  # see docs/pretraining.md for how it differs from AdamW
    config.optimizer.peak_learning_rate = 1e-4
    config.optimizer.warmup = "10000"  # 1 % of the steps
    config.optimizer.schedule = "linear"  # decay to final_fraction over the rest of the run
    config.optimizer.decay = "10%"  # used by schedule = "wsd" only
    config.optimizer.final_fraction = 0.0  # of the peak, at the end
    config.optimizer.warmup_from_zero = True  # the first update has learning rate 0; official code
    config.optimizer.beta1 = 0.9
    config.optimizer.beta2 = 0.999
    config.optimizer.eps = 1e-6
    config.optimizer.weight_decay = 0.01
    config.optimizer.clip_norm = 1.0  # of the global gradient
    config.optimizer.position_learning_rate_factor = 1.0  # of positional parameters

    # How long, and in which batches.
    config.train = ConfigDict()
    config.train.steps = 1_000_000  # 131 B tokens
    config.train.batch_size = 256  # sequences in all, over all devices
    config.train.accumulate = 1  # micro-batches per step
    config.train.log_every = 100  # steps
    config.train.ema_decay = 0.0  # 0: no averaged weights
    config.train.max_skipped_in_a_row = 5  # steps with a loss that is not finite
    config.train.profile_at = 0  # 0: no profiler trace
    config.train.wandb_project = ""  # empty: no Weights & Biases
    config.train.compilation_cache = True  # a resumed run need not compile again

    # Devices along each axis; -1: all that remain. By default all data-parallel.
    config.mesh = ConfigDict()
    config.mesh.slice = -1
    config.mesh.data = -1
    config.mesh.fsdp = 1
    config.mesh.tensor = 1

    # When to save, and what to keep.
    config.checkpoint = ConfigDict()
    config.checkpoint.every = 10_000  # steps
    config.checkpoint.every_minutes = 30.0  # if the last one is older; 0: off
    config.checkpoint.keep = 3  # the newest checkpoints
    config.checkpoint.keep_best = True  # and the one with the lowest validation loss
    config.checkpoint.keep_steps = ()  # and those of these steps, which are also saved

    # When a run that hangs ends, to be restarted (exit code 76).
    config.watchdog = ConfigDict()
    config.watchdog.stalled_minutes = 10.0  # without a step; 0: no limit here and in the next two
    config.watchdog.compile_minutes = 60.0
    config.watchdog.checkpoint_minutes = 30.0  # of saving or restoring
    config.watchdog.silence_seconds = 60.0  # without a heartbeat of a process
    config.watchdog.jax_heartbeat_seconds = 180  # JAX's limit for that; it names no host
    config.watchdog.stop_seconds = 120.0  # after SIGTERM, until the run begins to save

    # Validation loss on held-out text.
    config.eval = ConfigDict()
    config.eval.every = 10_000  # steps
    config.eval.rows = 4_096  # at most this many sequences

    config.seed = 0  # of initial weights, order of the data, masks and dropout
    return config
