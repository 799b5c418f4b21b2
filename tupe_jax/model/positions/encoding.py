"""A positional encoding as data, what it adds to the encoder, and the registry of encodings."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from tupe_jax.config.schema import ModelConfig
from tupe_jax.config.validation import checked, did_you_mean, one_of
from tupe_jax.model.layers import Weight
from tupe_jax.utils.errors import UserError

Weights = Mapping[str, jax.Array]


@dataclass(frozen=True)
class Encoding:
    """What a positional encoding adds; a part that is None is absent.

    Its learnable arrays are `weights` if all layers share them, `layer_weights` if each layer has
    its own. The biases and `theta` read `layer_weights` when there are any (the bias
    then belongs to a layer), else `weights` (it is computed once for all layers).
    """

    weights: Mapping[str, Weight] = field(default_factory=dict)
    layer_weights: Mapping[str, Weight] = field(default_factory=dict)

    input: Callable[[Weights, int], jax.Array] | None = None
    """(weights, S) -> [S, D], added to the token embedding."""

    bias: Callable[[Weights, int], jax.Array] | None = None
    """(weights, S) -> [H, S, S], added to the scaled logits: any bias. Prefer one of the next two
    forms if it fits: long sequences then need no S x S array."""
    position_products: Callable[[Weights, int], tuple[jax.Array, jax.Array]] | None = None
    """(weights, S) -> p_q [S, H, d], p_k: a bias p_q . p_k, the scale of logits in p_q."""
    distance_bias: Callable[[Weights, jax.Array], jax.Array] | None = None
    """(weights, distances j - i [N]) -> [H, N]: a bias that depends on the distance alone."""
    row_factor: Callable[[int], jax.Array] | None = None
    """S -> [S], not learnable: query i's `distance_bias` is multiplied by it."""
    theta: Callable[[Weights], tuple[jax.Array, jax.Array]] | None = None
    """weights -> ([H], [H]): this bias's theta_1 and theta_2. A bias without its own is given two
    learnable numbers per head when [CLS] is untied."""

    once: Callable[[Weights, int], Any] | None = None
    """(weights, S) -> arrays that every layer needs, computed once per forward pass."""
    local_once: Callable[[Weights, int], Any] | None = None
    """The same for layers with an attention window, if theirs differ."""
    queries_keys: (
        Callable[[Any, Weights, jax.Array, jax.Array], tuple[jax.Array, jax.Array]] | None
    ) = None
    """(once, layer_weights, q [B, S, H, d], k) -> q, k as they enter the dot product."""
    scores: Callable[[Any, Weights, jax.Array, jax.Array], jax.Array] | None = None
    """(once, layer_weights, q, k) -> [B, H, S, S], added to q k^T before the scale; q and k are the
    projections of the tokens, before any `queries_keys`."""

    longest: int | None = None
    """The longest input it can encode, if it has a table of positions."""

    @property
    def has_bias(self) -> bool:
        forms = self.bias, self.position_products, self.distance_bias
        return any(form is not None for form in forms)

    @property
    def has_layer_bias(self) -> bool:
        return self.has_bias and bool(self.layer_weights)


Option = bool | int | float | str
Make = Callable[..., Encoding]
"""(config, **options) -> Encoding."""


@dataclass(frozen=True)
class Entry:
    """An entry of the registry: how to make an encoding, and how many dot products it adds."""

    make: Make
    dot_products: int
    options: Mapping[str, Option] = field(default_factory=dict)
    """Default of each option; the type of the default is the type of the option."""


ABSOLUTE: dict[str, Entry] = {}
RELATIVE: dict[str, Entry] = {}


def absolute_encoding(name: str, dot_products: int = 0) -> Callable[[Make], Make]:
    """Register a function as `position.absolute=name`; see `relative_encoding`."""
    return _register(ABSOLUTE, name, dot_products)


def relative_encoding(name: str, dot_products: int = 0) -> Callable[[Make], Make]:
    """Register a function as `position.relative=name`; see `logit_scale` for `dot_products`.

    The function takes the model's config. Every further parameter, such as `width: int = 4`, is
    an option of the encoding that configs set as `position.options.width`.
    """
    return _register(RELATIVE, name, dot_products)


def _register(registry: dict[str, Entry], name: str, dot_products: int) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        if name in registry:
            raise UserError(f"a positional encoding {name!r} exists already; choose another name")
        registry[name] = Entry(make, dot_products, _declared_options(name, make))
        return make

    return register


def _declared_options(name: str, make: Make) -> dict[str, Option]:
    """The parameters after `config`, with their defaults."""
    _, *parameters = inspect.signature(make).parameters.values()
    for parameter in parameters:
        if type(parameter.default) not in (bool, int, float, str):
            raise UserError(
                f"option {parameter.name!r} of the positional encoding {name!r} needs a default "
                "that is a bool, an int, a float or a str"
            )
    return {parameter.name: parameter.default for parameter in parameters}


def logit_scale(config: ModelConfig) -> float:
    """1 / sqrt(n d), n the number of dot products summed in a logit.

    The token-token product is one; TUPE adds one (n = 2), DeBERTa two, BERT-A^d three. The sum then
    has the variance that a single product has in BERT.
    """
    added = sum(entry.dot_products for entry in _entries(config))
    return 1 / math.sqrt((1 + added) * config.head_size)


def encodings(config: ModelConfig) -> dict[str, Encoding]:
    """The absolute and the relative encoding of a config; a contradiction is an error."""
    entries = dict(zip(("absolute", "relative"), _entries(config), strict=True))
    _check_options(config, entries)
    chosen = {
        part: entry.make(config, **_options(config, entry)) for part, entry in entries.items()
    }
    if not config.position.untie_cls:
        return chosen
    if not any(encoding.has_bias for encoding in chosen.values()):
        raise UserError(
            "position.untie_cls=True unties [CLS] from position biases, but "
            f"position.absolute={config.position.absolute!r} and "
            f"position.relative={config.position.relative!r} have none; set it to False"
        )
    return {part: _with_theta(encoding, config) for part, encoding in chosen.items()}


def check_gain(name: str, gain: float) -> None:
    """Refuse a gain that removes or reverses a bias."""
    if not 0 < gain < math.inf:
        raise UserError(f"position.options.{name}={gain} must be more than 0 and finite")


def longest_input(config: ModelConfig) -> float:
    """The longest input in tokens; infinity if the model has no table of positions."""
    tables = [e.longest for e in encodings(config).values() if e.longest is not None]
    return min(tables, default=math.inf)


def padding_matters(config: ModelConfig) -> bool:
    """Whether the output for a sequence depends on its padding."""
    return any(encoding.row_factor for encoding in encodings(config).values())


def _entries(config: ModelConfig) -> tuple[Entry, Entry]:
    position = config.position
    return (
        ABSOLUTE[one_of(position.absolute, ABSOLUTE, "position.absolute")],
        RELATIVE[one_of(position.relative, RELATIVE, "position.relative")],
    )


def _check_options(config: ModelConfig, entries: Mapping[str, Entry]) -> None:
    """Refuse an option that neither encoding declares."""
    for name in config.position.options:
        if any(name in entry.options for entry in entries.values()):
            continue
        known = [option for entry in entries.values() for option in entry.options]
        declared = "; ".join(
            f"position.{part}={getattr(config.position, part)!r} has "
            f"{'the options ' + ', '.join(entry.options) if entry.options else 'no options'}"
            for part, entry in entries.items()
        )
        raise UserError(f"unknown position.options.{name}{did_you_mean(name, known)}: {declared}")


def _options(config: ModelConfig, entry: Entry) -> dict[str, Option]:
    """The options of an encoding: the values that the config sets, else the defaults."""
    given = config.position.options
    return {
        name: checked(given.get(name, default), type(default), f"position.options.{name}")
        for name, default in entry.options.items()
    }


def _with_theta(encoding: Encoding, config: ModelConfig) -> Encoding:
    """Give a bias without theta two learnable numbers per head."""
    if not encoding.has_bias or encoding.theta:
        return encoding
    theta = Weight((config.num_heads,), ("heads",))
    both = {"theta_1": theta, "theta_2": theta}

    def own_theta(weights: Weights) -> tuple[jax.Array, jax.Array]:
        return weights["theta_1"], weights["theta_2"]

    if encoding.has_layer_bias:
        return replace(encoding, layer_weights={**encoding.layer_weights, **both}, theta=own_theta)
    return replace(encoding, weights={**encoding.weights, **both}, theta=own_theta)
