"""A trained model: weights, config, tokenizer and metadata, and how to use them."""

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from tupe_jax.checkpointing.checksum import fingerprints
from tupe_jax.config.schema import ModelConfig, position_name
from tupe_jax.config.validation import one_of, whole_number
from tupe_jax.inference.batching import encode_sentences
from tupe_jax.inference.classify import Answer, Texts, as_answers, head_outputs
from tupe_jax.inference.embeddings import POOLINGS, Pooling, sentence_vectors
from tupe_jax.inference.fill_mask import Filled, fill_masks, pseudo_log_likelihoods
from tupe_jax.interop.model_folder import NO_METADATA, Generator, HeadMetadata, ModelMetadata
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.measurement import SHOWN_POSITIONS, bias_LxHxSxS
from tupe_jax.model.params import ParamArrays, arrays_of, classification_heads_in, model_from
from tupe_jax.model.positions import longest_input
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path, absolute

logger = logging.getLogger(__name__)

ManyTexts = list[str] | tuple[str, ...] | Iterator[str] | NDArray[np.str_]
"""Not Iterable: a single text is one, too, and gives a single result."""


class TrainedModel:
    """A trained model with its tokenizer; `tupe_jax.load` returns one.

    A text gives one result; a list of texts gives a list or an array, in the same order. Texts are
    sorted by length, padded to 16, 32, 64 and so on tokens, and run in batches. The first call for
    each shape compiles.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: ModelConfig,
        params: ParamArrays,
        tokenizer: Tokenizer | None = None,
        metadata: ModelMetadata = NO_METADATA,
        generator: Generator | None = None,
    ) -> None:
        if tokenizer is not None:
            check_tokenizer(config, tokenizer)
            tokenizer = _with_separators(config, tokenizer)
        self.path = str(path)
        self.config = config
        self.metadata = metadata
        self.optional_tokenizer = tokenizer
        self.classification_heads = classification_heads_in(params)
        self.generator = None if generator is None else TrainedModel(path, *generator, tokenizer)
        """ELECTRA's generator, a model of its own. It predicts masked tokens."""
        # In host memory until `module` is first used, then in the module.
        self._weights: ParamArrays | MaskedLM = params

    @property
    def name(self) -> str:
        """The last part of its path."""
        return absolute(Path(self.path)).name

    @property
    def tokenizer(self) -> Tokenizer:
        if self.optional_tokenizer is None:
            raise UserError(
                f"{self.path} has no tokenizer and cannot read text; give the SentencePiece file "
                "that the model was trained with as --vocabulary=FILE (in Python vocabulary=FILE)"
            )
        return self.optional_tokenizer

    @property
    def module(self) -> MaskedLM:
        """The Flax module. It is built on first use and then holds the only copy of the weights."""
        weights = self._weights
        if not isinstance(weights, MaskedLM):
            weights = self._weights = model_from(_anywhere(self.config), weights)
        return weights

    @property
    def params(self) -> ParamArrays:
        """The weights in host memory, by path."""
        weights = self._weights
        return arrays_of(weights) if isinstance(weights, MaskedLM) else weights

    def float32_module(self) -> MaskedLM:
        """A second module with the same weights that computes in float32, for measurements.

        In bfloat16, rounding hides the differences that the laboratory measures. The functions
        that measure also request exact float32 products, by `tupe_jax.model.measurement`.
        """
        return model_from(replace(_anywhere(self.config), dtype="float32"), self.params)

    @property
    def fingerprint(self) -> int:
        """A 32-bit checksum of the weights."""
        marks = fingerprints({".".join(path): array for path, array in self.params.items()})
        return sum(marks.values()) % 2**32

    @property
    def ordinary_ids(self) -> NDArray[np.int32]:
        """The ids of all tokens that are not special; without a tokenizer, all but padding."""
        if self.optional_tokenizer is None:
            return np.delete(np.arange(self.config.vocab_size, dtype=np.int32), self.config.pad_id)
        return self.optional_tokenizer.ordinary_ids

    def __repr__(self) -> str:
        config, longest = self.config, longest_input(self.config)
        step, length = self.metadata.step, self.metadata.length
        at_step = "" if step is None else f", step {step}"
        reads = "texts of any length" if longest == np.inf else f"texts of up to {longest} tokens"
        trained = "" if length is None else f" (pre-trained on sequences of {length})"
        lines = [
            f"{position_name(config.position)} from {self.path}{at_step}",
            f"  {_size(config)}, {config.num_heads} heads",
            f"  {config.vocab_size:,} tokens, {reads}{trained}",
        ]
        if self.generator is not None:
            size = _size(self.generator.config)
            lines.append(f"  detects replaced tokens; a generator, {size}, predicts masked ones")
        for head in self.classification_heads:
            classes = self._head_metadata(head).classes
            lines.append(f"  predicts {head}: {', '.join(classes) or 'a score'}")
        return "\n".join(lines)

    @overload
    def fill_mask(self, texts: str, top_k: int = 5) -> Filled: ...
    @overload
    def fill_mask(self, texts: ManyTexts, top_k: int = 5) -> list[Filled]: ...
    def fill_mask(self, texts: str | ManyTexts, top_k: int = 5) -> Filled | list[Filled]:
        """The `top_k` most likely tokens for each [MASK] of a text (ELECTRA's generator's)."""
        model = self._language_model()
        filled = fill_masks(model.module, self.tokenizer, _listed(texts), top_k)
        return filled[0] if isinstance(texts, str) else filled

    def encode(self, texts: str | ManyTexts, pooling: Pooling = "mean") -> NDArray[np.float32]:
        """A vector for each text, [texts, size], or [size] for one.

        `mean` averages the last hidden states of the text's tokens, `mean_all` also those of [CLS]
        and [SEP], as sentence-transformers does. `cls` is that of [CLS], which only fine-tuning
        trains.
        """
        one_of(pooling, POOLINGS, "pooling")
        vectors_NxD = sentence_vectors(self.module, self.tokenizer, _listed(texts), pooling)
        return vectors_NxD[0] if isinstance(texts, str) else vectors_NxD

    @overload
    def score(self, texts: str) -> float: ...
    @overload
    def score(self, texts: ManyTexts) -> NDArray[np.float64]: ...
    def score(self, texts: str | ManyTexts) -> float | NDArray[np.float64]:
        """The pseudo-log-likelihood of a text in nats: higher is more likely.

        Each token is masked in turn, so the work grows with the number of tokens. The score is a
        sum: compare texts of about the same length. For ELECTRA, it is the generator's score.
        """
        model = self._language_model()
        sequences = encode_sentences(self.tokenizer, _listed(texts), model.config)
        scores_N = pseudo_log_likelihoods(model.module, sequences, self.tokenizer.special.mask_id)
        return float(scores_N[0]) if isinstance(texts, str) else scores_N

    def position_bias(self, length: int | None = None) -> NDArray[np.float32]:
        """The position bias that each head adds to its attention logits, [layers, heads, i, j].

        There is one layer if all share the bias. Position 0 is that of [CLS]. The default length
        is 32, or the longest input of the model if that is shorter.
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
                f"{position_name(self.config.position)} has no position bias; `tupe analyze` "
                "measures its attention by position"
            )
        return np.array(bias, np.float32)  # a writable copy

    @overload
    def predict(self, texts: Texts, head: str | None = None) -> Answer | float: ...
    @overload
    def predict(
        self, texts: list[Texts], head: str | None = None
    ) -> list[Answer] | NDArray[np.float32]: ...
    def predict(
        self, texts: Texts | list[Texts], head: str | None = None
    ) -> Answer | float | list[Answer] | NDArray[np.float32]:
        """Predict with a classification head: a class for each text, or a score.

        A pair of texts is a tuple. Texts that are longer than in fine-tuning are truncated.
        """
        name = self._choose_head(head)
        metadata = self._head_metadata(name)
        single = isinstance(texts, str | tuple)
        listed = [_checked(text, name, metadata) for text in ([texts] if single else _each(texts))]
        outputs_NxC = head_outputs(self.module, self.tokenizer, listed, name, metadata.length)
        if metadata.classes:
            answers = as_answers(outputs_NxC, metadata.classes)
            return answers[0] if single else answers
        scores_N = outputs_NxC[:, 0] * np.float32(metadata.score_scale)
        return float(scores_N[0]) if single else scores_N

    def _language_model(self) -> "TrainedModel":
        """The model that predicts masked tokens: itself, or its generator."""
        if self.config.masked_word_head:
            return self
        if self.generator is None:
            detects = " ELECTRA's discriminator;" if self.config.replaced_token_head else ""
            raise UserError(
                f"{self.path}:{detects} model.masked_word_head=False, and there is no generator "
                "that would predict masked tokens; load a model with one of them"
            )
        logger.info("%s: masked tokens are predicted by its generator", self.path)
        return self.generator

    def _choose_head(self, requested: str | None) -> str:
        heads = self.classification_heads
        if not heads:
            raise UserError(f"{self.path} was not fine-tuned on any task; see `tupe finetune`")
        if requested is None and len(heads) > 1:
            raise UserError(f"the model has several heads; set head to one of {', '.join(heads)}")
        return next(iter(heads)) if requested is None else one_of(requested, heads, "head")

    def _head_metadata(self, head: str) -> HeadMetadata:
        """Without metadata, classes are numbered and inputs are as long as the model allows."""
        if head in self.metadata.heads:
            return self.metadata.heads[head]
        outputs = self.classification_heads[head]
        classes = tuple(map(str, range(outputs))) if outputs > 1 else ()
        length = int(min(HeadMetadata.length, longest_input(self.config)))
        return HeadMetadata(classes, length=length)


def _anywhere(config: ModelConfig) -> ModelConfig:
    """The config without a request for a kernel, which the platform or the type may not have."""
    if config.attention_implementation in ("pallas", "cudnn"):
        return replace(config, attention_implementation="auto")
    return config


def _size(config: ModelConfig) -> str:
    return f"{config.num_layers} layer{'s' * (config.num_layers > 1)}, {config.hidden_size} wide"


def _with_separators(config: ModelConfig, tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with as many [SEP] between the texts of a pair as in pre-training."""
    if config.next_sentence_head and isinstance(tokenizer, SentencePieceTokenizer):
        return replace(tokenizer, pair_separators=1)
    return tokenizer


def check_tokenizer(config: ModelConfig, tokenizer: Tokenizer) -> None:
    """Raise if the model was certainly not trained with this tokenizer."""
    pad_id = tokenizer.special.pad_id
    if tokenizer.size != config.vocab_size:
        raise UserError(
            f"{tokenizer.path}: {tokenizer.size} tokens, but the model has "
            f"{config.vocab_size}; the model was trained with another tokenizer"
        )
    if config.pad_id != pad_id:
        raise UserError(
            f"the model pads with token {config.pad_id}, but [PAD] is token {pad_id} in "
            f"{tokenizer.path}; the model was trained with another tokenizer"
        )
    if config.cls_last != tokenizer.cls_last:
        where = {True: "last", False: "first"}
        raise UserError(
            f"the model reads [CLS] {where[config.cls_last]}, but {tokenizer.path} puts it "
            f"{where[tokenizer.cls_last]}"
        )


def _each(texts: Any) -> list[Any]:
    try:
        return [texts] if isinstance(texts, str | bytes) else list(texts)
    except TypeError:  # not iterable, such as a number or an array without axes
        return [texts]


def _listed(texts: Any) -> list[str]:
    listed = _each(texts)
    for text in listed:
        if not isinstance(text, str):
            raise UserError(f"expected a text or a list of texts, not {type(text).__name__}")
    return [str(text) for text in listed]  # converts NumPy's strings


def _checked(text: Any, head: str, metadata: HeadMetadata) -> Texts:
    parts = text if isinstance(text, tuple) else (text,)
    counts = (1, 2) if metadata.texts is None else (metadata.texts,)
    if len(parts) not in counts or not all(isinstance(part, str) for part in parts):
        pair = "a pair of texts, (first, second), in the shell with a tab between them"
        expected = {1: "a text", 2: pair, None: "a text or a pair of texts"}
        raise UserError(f"head {head} expects {expected[metadata.texts]}; got {text!r}")
    return (str(parts[0]), str(parts[1])) if len(parts) == 2 else str(parts[0])
