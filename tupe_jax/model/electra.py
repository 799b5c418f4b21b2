"""ELECTRA's two networks: a generator that replaces tokens, a discriminator that detects them."""

from flax import nnx

from tupe_jax.config.schema import ModelConfig
from tupe_jax.model.encoder import Encoder
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.params import Path, path_names


class Electra(nnx.Module):
    """A generator and a discriminator with the same embeddings (Clark et al., 2020).

    The shared embeddings are those of tokens, segments and added positions, and their LayerNorm.
    They are parameters of `discriminator`; a checkpoint has them once.
    """

    def __init__(self, generator: ModelConfig, discriminator: ModelConfig, *, rngs: nnx.Rngs):
        self.discriminator = MaskedLM(discriminator, rngs=rngs)
        self.generator = MaskedLM(generator, rngs=rngs)
        _share_embeddings(self.generator.encoder, self.discriminator.encoder)


def _share_embeddings(generator: Encoder, discriminator: Encoder) -> None:
    generator.word_embedding = discriminator.word_embedding
    generator.segment_embedding = discriminator.segment_embedding
    generator.embedding_norm = discriminator.embedding_norm
    # Other tables of positions are as wide as the hidden states, which differ.
    if {generator.config.position.absolute, discriminator.config.position.absolute} == {"added"}:
        generator.positions.absolute["table"] = discriminator.positions.absolute["table"]


def own_paths(generator: ModelConfig, discriminator: ModelConfig) -> set[Path]:
    """The parameters of a generator that its discriminator does not share."""
    pair = nnx.eval_shape(lambda: Electra(generator, discriminator, rngs=nnx.Rngs(0)))
    paths = (path_names(path) for path, _ in nnx.to_flat_state(nnx.state(pair, nnx.Param)))
    return {path[1:] for path in paths if path[0] == "generator"}
