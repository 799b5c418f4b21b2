"""All objectives by name, and the models that a checkpoint of any of them exports."""

from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
from flax import nnx

from tupe_jax.config.schema import Config
from tupe_jax.config.validation import one_of
from tupe_jax.model.params import Array, Path, path_names
from tupe_jax.objectives.base import Exported, Objective
from tupe_jax.objectives.masked_lm import MaskedLMObjective
from tupe_jax.objectives.next_sentence import NextSentenceObjective
from tupe_jax.objectives.replaced_token import ReplacedTokenObjective
from tupe_jax.utils.errors import UserError

OBJECTIVES: dict[str, Callable[[Config, Sequence[bool] | None], Objective]] = {
    "masked_lm": MaskedLMObjective,
    "masked_lm_nsp": NextSentenceObjective,
    "replaced_token": ReplacedTokenObjective,
}


def make_objective(config: Config, starts_word_V: Sequence[bool] | None = None) -> Objective:
    """Return the objective `config.objective.name`.

    `starts_word_V` marks the tokens that start a word. Only preparing a batch needs it.
    """
    make = OBJECTIVES[one_of(config.objective.name, OBJECTIVES, "objective.name")]
    return make(config, starts_word_V)


def exported_models(config: Config, params: Mapping[Path, Array]) -> Exported:
    """Return what the objective exports of a trained module with these parameters."""
    objective = make_objective(config)
    graph, abstract = nnx.split(nnx.eval_shape(lambda: objective.build(nnx.Rngs(0))))
    wanted = {path_names(path): (path, param) for path, param in nnx.to_flat_state(abstract)}
    if missing := sorted(".".join(path) for path in wanted.keys() - params.keys()):
        raise UserError(
            f"no array {missing[0]} in the checkpoint, which objective.name="
            f"{config.objective.name} needs; load it with the version of tupe_jax that wrote it"
        )
    filled = [
        (path, param.replace(jnp.asarray(params[name]))) for name, (path, param) in wanted.items()
    ]
    return objective.to_export(nnx.merge(graph, nnx.from_flat_state(filled)))
