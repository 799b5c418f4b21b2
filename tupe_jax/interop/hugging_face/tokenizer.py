"""Read the tokenizer in a folder of Hugging Face's layout, from any of the files it may be in."""

import importlib
import json
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tupe_jax.interop.hugging_face.files import CONFIG
from tupe_jax.interop.hugging_face.json_settings import JsonSettings
from tupe_jax.tokenizers.base import SpecialTokens
from tupe_jax.tokenizers.hugging_face import HuggingFaceTokenizer, library
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import local_file
from tupe_jax.utils.paths import Path

TOKENIZER, WORDPIECE = "tokenizer.json", "vocab.txt"
SENTENCEPIECE = ("spiece.model", "spm.model", "sentencepiece.bpe.model", "sentencepiece.model")
BPE = ("vocab.json", "merges.txt")
TOKENIZER_SETTINGS, ADDED_TOKENS = "tokenizer_config.json", "added_tokens.json"


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TokenizerKind:
    """The defaults of a model type, for what the files may leave out."""

    pad: str
    cls: str
    sep: str
    mask: str
    unk: str
    pair_separators: int = 1
    """The number of [SEP] between the texts of a pair."""
    cls_last: bool = False
    """[CLS] is the last token of a sequence instead of the first."""
    lower_case: bool | None = False
    """None: as in tokenizer.json, whatever do_lower_case is."""
    mask_takes_space: bool = False
    """[MASK] includes the space before it."""
    adds_mask: bool = False
    """[MASK] is added after the tokens of the file."""
    normalizer: Literal["albert", "deberta-v2", "rembert", "xlm-roberta"] = "albert"
    """The model type whose way to normalize and split text before SentencePiece it has."""
    first_tokens: tuple[str, ...] = ()
    """Tokens that come before SentencePiece's; [MASK] then comes after them."""
    dropped_pieces: int = 0
    """How many of SentencePiece's first tokens are left out."""
    is_vocabulary: bool = False
    """Every token of vocab.txt is found wherever it is in a text, as the amino acids of ESM."""
    needs_jieba: bool = False
    """Chinese is split into words by jieba. Here it is split into characters."""
    has_bos: bool = False
    """[CLS] and [SEP] are called bos_token and eos_token."""


_BERT = TokenizerKind("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", lower_case=True)
_ROBERTA = TokenizerKind("<pad>", "<s>", "</s>", "<mask>", "<unk>", pair_separators=2)
_XLM_ROBERTA = replace(
    _ROBERTA,
    lower_case=None,
    normalizer="xlm-roberta",
    first_tokens=("<s>", "<pad>", "</s>", "<unk>"),
    dropped_pieces=3,
)

KINDS: Mapping[str, TokenizerKind] = {
    "bert": _BERT,
    "electra": _BERT,
    "roberta": _ROBERTA,
    "mpnet": replace(_ROBERTA, unk="[UNK]", lower_case=True, mask_takes_space=True),
    "deberta": replace(_BERT, lower_case=False),
    "deberta-v2": replace(_BERT, lower_case=False, adds_mask=True, normalizer="deberta-v2"),
    "albert": replace(_BERT, pad="<pad>", unk="<unk>"),
    "modernbert": replace(_BERT, lower_case=None),
    "distilbert": _BERT,
    "ernie": _BERT,
    "megatron-bert": _BERT,
    "nomic_bert": _BERT,
    "roformer": replace(_BERT, needs_jieba=True),
    "rembert": replace(_BERT, pad="<pad>", unk="<unk>", lower_case=False, normalizer="rembert"),
    "roberta-prelayernorm": _ROBERTA,
    "xlm-roberta": _XLM_ROBERTA,
    "jina_embeddings_v3": _XLM_ROBERTA,
    "gte": _XLM_ROBERTA,
    "camembert": replace(
        _XLM_ROBERTA,
        first_tokens=("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"),
        dropped_pieces=1,
        mask_takes_space=True,
    ),
    "esm": TokenizerKind(
        "<pad>", "<cls>", "<eos>", "<mask>", "<unk>", lower_case=None, is_vocabulary=True
    ),
    "eurobert": TokenizerKind(
        "<|end_of_text|>",
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|mask|>",
        "",
        lower_case=None,
        has_bos=True,
    ),
    "xlnet": TokenizerKind(
        "<pad>", "<cls>", "<sep>", "<mask>", "<unk>", cls_last=True, mask_takes_space=True
    ),
}

CLASSES: Mapping[str, TokenizerKind] = {
    "BertTokenizer": KINDS["bert"],
    "ElectraTokenizer": KINDS["electra"],
    "RobertaTokenizer": KINDS["roberta"],
    "XLMRobertaTokenizer": KINDS["xlm-roberta"],
    "CamembertTokenizer": KINDS["camembert"],
    "DistilBertTokenizer": KINDS["distilbert"],
    "RoFormerTokenizer": KINDS["roformer"],
    "RemBertTokenizer": KINDS["rembert"],
    "EsmTokenizer": KINDS["esm"],
    "MPNetTokenizer": KINDS["mpnet"],
    "DebertaTokenizer": KINDS["deberta"],
    "DebertaV2Tokenizer": KINDS["deberta-v2"],
    "AlbertTokenizer": KINDS["albert"],
    "XLNetTokenizer": KINDS["xlnet"],
}
"""A model may use the tokenizer of another type; its settings name the class."""


def read_tokenizer(folder: Path, model_type: str, size: int) -> HuggingFaceTokenizer:
    """The tokenizer of a model whose embedding has `size` rows."""
    found = {
        **_json(folder / "special_tokens_map.json"),
        **_json(folder / TOKENIZER_SETTINGS),
    }
    settings = JsonSettings(found, str(folder / TOKENIZER_SETTINGS))
    kind = _kind(folder, model_type, settings)
    called = {
        name: {"cls": "bos", "sep": "eos"}.get(name, name) if kind.has_bos else name
        for name in _NAMES
    }
    written = {name: _written(found.get(f"{called[name]}_token"), kind, name) for name in _NAMES}
    written = {name: text for name, text in written.items() if text}  # some have no unk
    tokenizer = _tokenizer(folder, kind, settings, written)
    ids = {name: tokenizer.token_to_id(text) for name, text in written.items()}
    for name, number in ids.items():
        if number is None:
            raise UserError(f"{folder}: its tokenizer has no {name} token {written[name]!r}")
    if tokenizer.get_vocab_size() > size:
        raise UserError(
            f"{folder}: its tokenizer has {tokenizer.get_vocab_size()} tokens, but the model {size}"
        )
    special = SpecialTokens(**{f"{name}_id": number for name, number in ids.items()})
    separators = kind.pair_separators
    if _class_name(folder, settings) not in ("", *CLASSES):
        separators = _separators_of_pair(tokenizer, special) or separators
    return HuggingFaceTokenizer(folder, special, separators, kind.cls_last, size, tokenizer)


def _separators_of_pair(tokenizer: Any, special: SpecialTokens) -> int:
    """How many [SEP] its file puts between two texts; 0 if the file does not end them with one."""
    ids = tokenizer.encode("a", "a").ids
    return ids.count(special.sep_id) - 1 if ids[-1:] == [special.sep_id] else 0


def _class_name(folder: Path, settings: JsonSettings) -> str:
    named = settings.values.get("tokenizer_class") or _json(folder / CONFIG).get("tokenizer_class")
    return str(named or "").removesuffix("Fast")


def _kind(folder: Path, model_type: str, settings: JsonSettings) -> TokenizerKind:
    name = _class_name(folder, settings)
    if name and name not in CLASSES and not (folder / TOKENIZER).exists():
        raise UserError(
            f"{folder}: its tokenizer is a {name}, which is not supported without a {TOKENIZER}"
        )
    own = KINDS[model_type]
    return CLASSES.get(name, replace(own, lower_case=None)) if name else own


_NAMES = ("pad", "cls", "sep", "mask", "unk")


def _written(setting: Any, kind: TokenizerKind, name: str) -> str:
    """The text of a special token; files before 2024 wrap it in its properties."""
    setting = setting.get("content") if isinstance(setting, Mapping) else setting
    return str(setting or getattr(kind, name))


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise UserError(f"{file} is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise UserError(f"{file} should be a JSON object")
    return found


def _tokenizer(
    folder: Path, kind: TokenizerKind, settings: JsonSettings, written: Mapping[str, str]
) -> Any:
    tokenizers = library()
    if (folder / TOKENIZER).exists():
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER))
        except Exception as error:  # the library raises nothing more special
            raise UserError(f"{folder / TOKENIZER} cannot be read: {error}") from None
        _check_case(tokenizer, folder, kind, settings)
    elif (folder / WORDPIECE).exists():
        make = _whole_tokens if kind.is_vocabulary else _wordpiece
        tokenizer = make(folder / WORDPIECE, kind, settings, written["unk"])
    elif all((folder / name).exists() for name in BPE):
        tokenizer = _byte_level_bpe(folder, settings)
    elif models := [folder / name for name in SENTENCEPIECE if (folder / name).exists()]:
        tokenizer = _unigram(models[0], kind, settings)
    else:
        raise UserError(
            f"{folder} has no tokenizer: none of {TOKENIZER}, {WORDPIECE}, {' with '.join(BPE)}, "
            f"{', '.join(SENTENCEPIECE)}"
        )
    if kind.needs_jieba:
        _split_chinese(tokenizer, folder)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    _add_tokens(tokenizer, folder, settings, written.values())
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}

    def is_there(name: str, text: str) -> bool:
        # An added token would get an untrained row of the embedding.
        return tokenizer.token_to_id(text) is not None or (name == "mask" and kind.adds_mask)

    tokenizer.add_special_tokens(
        [
            tokenizers.AddedToken(
                text, normalized=False, lstrip=name == "mask" and kind.mask_takes_space
            )
            for name, text in written.items()
            if text not in known and is_there(name, text)
        ]
    )
    return tokenizer


def _check_case(tokenizer: Any, folder: Path, kind: TokenizerKind, settings: JsonSettings) -> None:
    """Raise if the files disagree on lower-casing; the model was trained with only one of them."""
    if kind.lower_case is None or isinstance(tokenizer.model, library().models.BPE):
        return
    normalizer = tokenizer.normalizer
    lowers = normalizer is not None and "a" in normalizer.normalize_str("A")
    expected = settings.flag("do_lower_case", kind.lower_case)
    if lowers != expected:
        is_default = settings.values.get("do_lower_case") is None
        raise UserError(
            f"{folder / TOKENIZER} {'lower-cases' if lowers else 'does not lower-case'}, but "
            f"do_lower_case in {TOKENIZER_SETTINGS} is {expected}{' by default' * is_default}; "
            "make them agree"
        )


def _add_tokens(
    tokenizer: Any, folder: Path, settings: JsonSettings, special: Collection[str]
) -> None:
    """Add the tokens that the tokenizer's own file may lack."""
    found = settings.values.get("added_tokens_decoder")
    if found is None:  # files before 2023
        found = {
            number: {"content": text, "special": text in special, "normalized": text not in special}
            for text, number in _json(folder / ADDED_TOKENS).items()
        }
    try:
        numbered = {int(number): library().AddedToken(**token) for number, token in found.items()}
    except (AttributeError, TypeError, ValueError):
        raise UserError(
            f"{folder}: {TOKENIZER_SETTINGS} or {ADDED_TOKENS} should list added tokens by id"
        ) from None
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    for number, token in sorted(numbered.items(), key=lambda item: item[0]):
        if token.content not in known:
            (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
        if tokenizer.token_to_id(token.content) != number:
            raise UserError(
                f"{folder}: the added token {token.content!r} should have id {number}, but has "
                f"{tokenizer.token_to_id(token.content)}"
            )


def _wordpiece(file: Path, kind: TokenizerKind, settings: JsonSettings, unk: str) -> Any:
    tokenizers = library()
    tokens = file.read_text(encoding="utf-8").split("\n")
    ids = {token: i for i, token in enumerate(tokens) if token}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token=unk))
    lower_case = settings.flag("do_lower_case", bool(kind.lower_case))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.flag("tokenize_chinese_chars", True),
        strip_accents=settings.flag("strip_accents", lower_case),
        lowercase=lower_case,
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    return tokenizer


def _whole_tokens(file: Path, kind: TokenizerKind, settings: JsonSettings, unk: str) -> Any:
    """Tokens are found wherever they are, the longest first; what is between them is unknown."""
    tokenizers = library()
    tokens = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    ids = {token: i for i, token in enumerate(tokens)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token=unk))
    longest_first = sorted(filter(None, tokens), key=len, reverse=True)
    any_token = tokenizers.Regex("|".join(map(re.escape, longest_first)))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(any_token, "isolated"),
            tokenizers.pre_tokenizers.WhitespaceSplit(),
        ]
    )
    return tokenizer


def _split_chinese(tokenizer: Any, folder: Path) -> None:
    """Split Chinese into characters, as BERT does."""
    normalizers = library().normalizers
    split = normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
    )
    own = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    tokenizer.normalizer = normalizers.Sequence([*own, split])
    logger.warning(
        "%s: Chinese is split into characters; RoFormer's tokenizer splits it into words (jieba)",
        folder,
    )


def _byte_level_bpe(folder: Path, settings: JsonSettings) -> Any:
    tokenizers = library()
    vocab, merges = (folder / name for name in BPE)
    with local_file(vocab) as local_vocab, local_file(merges) as local_merges:
        model = tokenizers.models.BPE.from_file(str(local_vocab), str(local_merges))
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=settings.flag("add_prefix_space", False)
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def _unigram(file: Path, kind: TokenizerKind, settings: JsonSettings) -> Any:
    tokenizers = library()
    model = importlib.import_module("sentencepiece.sentencepiece_model_pb2").ModelProto()
    model.ParseFromString(file.read_bytes())
    if model.trainer_spec.model_type != model.trainer_spec.UNIGRAM:
        raise UserError(f"{file} is not a SentencePiece unigram model")
    pieces = [(piece.piece, piece.score) for piece in model.pieces]
    unk_id = model.trainer_spec.unk_id
    if kind.first_tokens:
        first = [(token, -100.0 if token == "<unk>NOTUSED" else 0.0) for token in kind.first_tokens]
        pieces = [*first, *pieces[kind.dropped_pieces :], (kind.mask, 0.0)]
        unk_id = kind.first_tokens.index(kind.unk)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id, byte_fallback=False))
    characters = model.normalizer_spec.precompiled_charsmap
    tokenizer.normalizer = _normalizer(kind, settings, characters)
    split = []
    if kind.normalizer in ("albert", "xlm-roberta"):
        split = [tokenizers.pre_tokenizers.WhitespaceSplit()]
    elif kind.normalizer == "deberta-v2" and settings.flag("split_by_punct", False):
        split = [tokenizers.pre_tokenizers.Punctuation()]
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [*split, tokenizers.pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    for piece in model.pieces:
        if piece.type in (piece.CONTROL, piece.USER_DEFINED):
            token = tokenizers.AddedToken(piece.piece, normalized=False)
            (tokenizer.add_special_tokens if piece.type == piece.CONTROL else tokenizer.add_tokens)(
                [token]
            )
    return tokenizer


def _normalizer(kind: TokenizerKind, settings: JsonSettings, characters: bytes) -> Any:
    """What a SentencePiece tokenizer of this kind does before its model."""
    tokenizers = library()
    normalizers = tokenizers.normalizers
    own_table = [normalizers.Precompiled(characters)] if characters else []
    if kind.normalizer == "xlm-roberta":
        return normalizers.Sequence(own_table)
    lower = [normalizers.Lowercase()] * settings.flag("do_lower_case", bool(kind.lower_case))
    if kind.normalizer == "deberta-v2":
        spaces = normalizers.Replace(tokenizers.Regex(r"\s{2,}|[\n\r\t]"), " ")
        strip = normalizers.Strip(left=False, right=True)
        return normalizers.Sequence([*lower, spaces, normalizers.NFC(), strip])
    is_rembert = kind.normalizer == "rembert"
    steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if is_rembert:
        steps.append(normalizers.Replace(tokenizers.Regex(" {2,}"), " "))
    if not settings.flag("keep_accents", is_rembert):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    return normalizers.Sequence([*steps, *lower, *own_table])
