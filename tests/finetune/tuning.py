"""Small real fine-tuning runs: a model of one layer, a task of a hundred examples."""

from flax import nnx

from tests.model.helpers import save_folder, small_config, with_position
from tupe_jax.config.schema import OptimizerConfig
from tupe_jax.data.pretraining.train_tokenizer import train_tokenizer
from tupe_jax.finetune.config import FinetuneConfig
from tupe_jax.finetune.data import encode_split
from tupe_jax.finetune.results import Trial
from tupe_jax.finetune.run import finetune
from tupe_jax.finetune.tasks import FinetuneTask, open_task
from tupe_jax.inference.loading import load
from tupe_jax.model.heads import MaskedLM

PIECES = 300
TASK = "builtin_sst"
TRAIN, DEV = 100, 40
ONE, TWO = Trial(2e-3, 0), Trial(1e-3, 1)
CONFIG = FinetuneConfig(
    batch_size=16,
    length=32,
    epochs=2,
    save_seconds=0,
    optimizer=OptimizerConfig(warmup="6%"),
)
"""Seven steps in an epoch, the last one of four examples; a checkpoint at every step."""


MODEL = with_position(small_config(vocab_size=PIECES, num_layers=1), max_length=64)
"""Dropout is on, since resuming must reproduce it."""


def make_model_folder(folder):
    vocabulary = train_tokenizer(
        "builtin:100", folder / "v.model", size=PIECES, cleaning=(), seed=0
    )
    model = MaskedLM(MODEL, rngs=nnx.Rngs(0))
    save_folder(model, folder / "model", vocabulary.path.read_bytes())
    return folder / "model"


def small_task():
    return open_task(TASK, train_examples=TRAIN, dev_examples=DEV)


class NeverStop:
    requested = False
    has_state = False


def tune(model_folder, task, workdir, trials=(ONE, TWO), config=CONFIG, stop=None):
    return finetune(config, load(model_folder), task, trials, workdir, stop or NeverStop())


def rows_of(examples, vocabulary):
    return encode_split(examples, vocabulary, CONFIG.length)


def own_task(classes, examples, **settings):
    """The same examples to train on and to be evaluated on."""
    metrics = ("pearson",) if classes is None else ("accuracy",)
    return FinetuneTask("own", classes, metrics, examples, {"dev": examples}, **settings)
