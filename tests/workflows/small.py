"""What makes documented commands small: added to them, visibly, in the steps of a workflow."""

MODEL = """
  --config.model.vocab_size=300 --config.model.num_layers=1 --config.model.num_heads=2
  --config.model.hidden_size=32 --config.model.mlp_size=32
"""
FEW_STEPS = """
  --config.train.batch_size=4 --config.train.steps=4 --config.eval.rows=8
"""
LONG_ENOUGH_TO_STOP = """
  --config.train.batch_size=4 --config.train.steps=300 --config.train.log_every=1
  --config.eval.rows=8 --config.eval.every=300
"""
PREPARED = "--config.data.prepared=rows --config.data.length=16"
MEASUREMENT = "--length=8 --words=2"
STUDY = """
  --config.seeds=0 --config.learning_rates=2e-3
  --config.pretrain.model.vocab_size=300 --config.pretrain.model.num_layers=1
  --config.pretrain.model.hidden_size=32 --config.pretrain.model.mlp_size=32
  --config.pretrain.train.batch_size=4 --config.pretrain.train.steps=4
  --config.pretrain.eval.every=2 --config.pretrain.eval.rows=8
  --config.measure.length=8 --config.measure.words=2 --config.measure.lengths=16,32
"""
"""To be used with `--shard`, for one run: `tests/test_notebooks.py` runs a whole study."""
STUDY_TASKS = """
  --config.downstream.train_examples=16 --config.downstream.dev_examples=8
  --config.downstream.finetune.epochs=1
  --config.measure.minimal_pairs=4 --config.measure.probe_pairs=20
"""
