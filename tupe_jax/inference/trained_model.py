"""A trained model in a few words of Python: `tupe_jax.load(path)`."""

import os
from collections.abc import Iterator
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from tupe_jax.config.schema import ModelConfig, position_name
from tupe_jax.config.validation import one_of, whole_number
from tupe_jax.inference.batching import encode_sentences
from tupe_jax.inference.classify import Answer, Texts, as_answers, head_outputs
from tupe_jax.inference.embeddings import POOLINGS, Pooling, sentence_vectors
from tupe_jax.inference.fill_mask import Filled, fill_masks, pseudo_log_likelihoods
from tupe_jax.inference.loading import load_pretrained, no_tokenizer
from tupe_jax.interop import model_folder as folder
from tupe_jax.interop.model_folder import HeadFacts
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.params import classification_heads_of
from tupe_jax.model.position_only import SHOWN_POSITIONS, bias_LxHxSxS
from tupe_jax.model.positions import longest_input
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.utils.errors import UserError

ManyTexts = list[str] | tuple[str, ...] | Iterator[str] | NDArray[np.str_]
"""Not Iterable: a text itself is one, and gives one result."""


def load(
    path: str | os.PathLike[str], vocabulary: str | os.PathLike[str] | None = None
) -> "TrainedModel":
    """The model in a work directory, a checkpoint, a model folder, or a finished fine-tuning.

    A model folder may be an exported or imported one, or one in Hugging Face's layout.

    `vocabulary` is a SentencePiece file for a folder that has none. Without any a model can be
    looked at (`position_bias`, `module`), but it reads no texts. So it is with the official
    checkpoints: theirs were cut by another tokenizer.
    """
    pretrained = load_pretrained(path, vocabulary)
    known = pretrained.known_vocabulary
    return TrainedModel(str(path), pretrained.model(), known, pretrained.facts)


class TrainedModel:
    """A model with its vocabulary.

    A text gives one result, a list of texts a list or array of them, in their order. Texts are
    sorted by length, padded to 16, 32, 64 and so on tokens and run in batches; the first call of
    each shape compiles.
    """

    def __init__(
        self, name: str, module: MaskedLM, vocabulary: Tokenizer | None, facts: folder.Facts
    ) -> None:
        self.name, self.module, self.config = name, module, module.config
        self.step, self.length = facts.step, facts.length
        self._vocabulary = vocabulary
        self._heads = {
            head: facts.heads.get(head) or _unknown(outputs, self.config)
            for head, outputs in classification_heads_of(module).items()
        }

    @property
    def vocabulary(self) -> Tokenizer:
        if self._vocabulary is None:
            raise no_tokenizer(self.name)
        return self._vocabulary

    def __repr__(self) -> str:
        config, longest = self.config, longest_input(self.config)
        step = "" if self.step is None else f", step {self.step}"
        reads = "texts of any length" if longest == np.inf else f"texts of up to {longest} tokens"
        seen = "" if self.length is None else f" (rows of {self.length} in pre-training)"
        lines = [
            f"{position_name(config.position)} from {self.name}{step}",
            f"  {config.num_layers} layer{'s' * (config.num_layers > 1)}, "
            f"{config.hidden_size} wide, {config.num_heads} heads",
            f"  {config.vocab_size:,} pieces, {reads}{seen}",
        ]
        for head, facts in self._heads.items():
            lines.append(f"  answers {head}: {', '.join(facts.classes) or 'a score'}")
        return "\n".join(lines)

    @overload
    def fill_mask(self, texts: str, top_k: int = 5) -> Filled: ...
    @overload
    def fill_mask(self, texts: ManyTexts, top_k: int = 5) -> list[Filled]: ...
    def fill_mask(self, texts: str | ManyTexts, top_k: int = 5) -> Filled | list[Filled]:
        """The `top_k` likeliest pieces for each [MASK] of a text."""
        filled = fill_masks(self.module, self.vocabulary, _listed(texts), top_k)
        return filled[0] if isinstance(texts, str) else filled

    def encode(self, texts: str | ManyTexts, pooling: Pooling = "mean") -> NDArray[np.float32]:
        """A vector for each text, [texts, size], or [size] for one.

        `mean` is over the last hidden states of the words. `cls` is that of [CLS], which is trained
        only when a model is fine-tuned.
        """
        one_of(pooling, POOLINGS, "pooling")
        vectors_NxD = sentence_vectors(self.module, self.vocabulary, _listed(texts), pooling)
        return vectors_NxD[0] if isinstance(texts, str) else vectors_NxD

    @overload
    def score(self, texts: str) -> float: ...
    @overload
    def score(self, texts: ManyTexts) -> NDArray[np.float64]: ...
    def score(self, texts: str | ManyTexts) -> float | NDArray[np.float64]:
        """How likely the model finds a text: its pseudo-log-likelihood in nats, below 0.

        Each piece is hidden in turn, so a text is as much work as it has pieces. The score is a
        sum: compare texts of about the same length.
        """
        rows = encode_sentences(self.vocabulary, _listed(texts), self.config)
        scores_N = pseudo_log_likelihoods(self.module, rows, self.vocabulary.special.mask_id)
        return float(scores_N[0]) if isinstance(texts, str) else scores_N

    def position_bias(self, length: int | None = None) -> NDArray[np.float32]:
        """What each head adds to its logits for the sake of positions, [layers, heads, i, j].

        There is one layer if all share the bias. Position 0 is that of [CLS]. The length is 32
        unless told, or less if the model knows no more positions.
        """
        longest = longest_input(self.config)
        length = (
            int(min(SHOWN_POSITIONS, longest)) if length is None else whole_number(length, "length")
        )
        if not 1 <= length <= longest:
            raise UserError(f"length={length} must be at least 1 and at most {longest}")
        bias = bias_LxHxSxS(self.module.encoder, length)
        if bias is None:
            raise UserError(
                f"{position_name(self.config.position)} has no position bias; `tupe analyze` shows "
                "what its heads attend to by position"
            )
        return np.array(bias, np.float32)  # a copy: JAX gives arrays that cannot be written to

    @overload
    def predict(self, texts: Texts, head: str | None = None) -> Answer | float: ...
    @overload
    def predict(
        self, texts: list[Texts], head: str | None = None
    ) -> list[Answer] | NDArray[np.float32]: ...
    def predict(
        self, texts: Texts | list[Texts], head: str | None = None
    ) -> Answer | float | list[Answer] | NDArray[np.float32]:
        """What a fine-tuned model answers: a class for each text, or a score.

        A pair of texts is a tuple of two; texts longer than in fine-tuning are cut as there.
        """
        name = self._head(head)
        facts = self._heads[name]
        single = isinstance(texts, str | tuple)
        listed = [_checked(text, name, facts) for text in ([texts] if single else _each(texts))]
        outputs_NxC = head_outputs(self.module, self.vocabulary, listed, name, facts.length)
        if facts.classes:
            answers = as_answers(outputs_NxC, facts.classes)
            return answers[0] if single else answers
        scores_N = outputs_NxC[:, 0] * np.float32(facts.score_scale)
        return float(scores_N[0]) if single else scores_N

    def _head(self, asked: str | None) -> str:
        if not self._heads:
            raise UserError(f"{self.name} was not fine-tuned on any task; see `tupe finetune`")
        if asked is None and len(self._heads) > 1:
            raise UserError(f"say which head=... is to answer: {', '.join(self._heads)}")
        return next(iter(self._heads)) if asked is None else one_of(asked, self._heads, "head")


def _each(texts: Any) -> list[Any]:
    try:
        return [texts] if isinstance(texts, str | bytes) else list(texts)
    except TypeError:  # nothing to go through, as a number or an array without axes
        return [texts]


def _listed(texts: Any) -> list[str]:
    listed = _each(texts)
    for text in listed:
        if not isinstance(text, str):
            raise UserError(f"a text or a list of texts is needed, not {type(text).__name__}")
    return [str(text) for text in listed]  # NumPy has strings of its own


def _checked(text: Any, head: str, facts: HeadFacts) -> Texts:
    parts = text if isinstance(text, tuple) else (text,)
    counts = (1, 2) if facts.texts is None else (facts.texts,)
    if len(parts) not in counts or not all(isinstance(part, str) for part in parts):
        pair = "a pair of texts, (one, other), in the shell with a tab between them"
        wanted = {1: "a text", 2: pair, None: "a text or a pair"}
        raise UserError(f"{head} judges {wanted[facts.texts]}; {text!r} is not")
    return (str(parts[0]), str(parts[1])) if len(parts) == 2 else str(parts[0])


def _unknown(outputs: int, config: ModelConfig) -> HeadFacts:
    """Of a head that came without facts: numbers for classes, as much text as the model reads."""
    classes = tuple(map(str, range(outputs))) if outputs > 1 else ()
    return HeadFacts(classes, length=int(min(HeadFacts.length, longest_input(config))))
