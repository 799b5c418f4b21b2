"""The tokenizer in a folder of Hugging Face's layout, from whichever files it has."""

import importlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tupe_jax.interop.hugging_face.files import SETTINGS
from tupe_jax.interop.hugging_face.settings import Settings
from tupe_jax.tokenizers.base import SpecialTokens
from tupe_jax.tokenizers.hugging_face import HuggingFaceTokenizer, library
from tupe_jax.utils.errors import UserError

TOKENIZER, WORDPIECE, SENTENCEPIECE = "tokenizer.json", "vocab.txt", ("spiece.model", "spm.model")
BPE = ("vocab.json", "merges.txt")
TOKENIZER_SETTINGS, ADDED_PIECES = "tokenizer_config.json", "added_tokens.json"


@dataclass(frozen=True)
class Kind:
    """What the files may leave unsaid: how a model type writes its special pieces."""

    pad: str
    cls: str
    sep: str
    mask: str
    unk: str
    pair_separators: int = 1
    """[SEP] between the texts of a pair."""
    cls_last: bool = False
    """[CLS] ends a row instead of beginning it."""
    lower_case: bool | None = False
    """None: as in its tokenizer.json, whatever is set."""
    mask_takes_space: bool = False
    """The space before it, like a word."""
    adds_mask: bool = False
    """Behind the pieces of its files."""
    keeps_spaces: bool = False
    """To SentencePiece a text is one word."""


_BERT = Kind("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", lower_case=True)
_ROBERTA = Kind("<pad>", "<s>", "</s>", "<mask>", "<unk>", pair_separators=2)

KINDS: Mapping[str, Kind] = {
    "bert": _BERT,
    "electra": _BERT,
    "roberta": _ROBERTA,
    "mpnet": replace(_ROBERTA, unk="[UNK]", lower_case=True, mask_takes_space=True),
    "deberta": replace(_BERT, lower_case=False),
    "deberta-v2": replace(_BERT, lower_case=False, adds_mask=True, keeps_spaces=True),
    "albert": replace(_BERT, pad="<pad>", unk="<unk>"),
    "xlnet": Kind(
        "<pad>", "<cls>", "<sep>", "<mask>", "<unk>", cls_last=True, mask_takes_space=True
    ),
}

CLASSES: Mapping[str, Kind] = {
    "BertTokenizer": KINDS["bert"],
    "ElectraTokenizer": KINDS["electra"],
    "RobertaTokenizer": KINDS["roberta"],
    "XLMRobertaTokenizer": replace(_ROBERTA, lower_case=None),
    "MPNetTokenizer": KINDS["mpnet"],
    "DebertaTokenizer": KINDS["deberta"],
    "DebertaV2Tokenizer": KINDS["deberta-v2"],
    "AlbertTokenizer": KINDS["albert"],
    "XLNetTokenizer": KINDS["xlnet"],
}
"""A model may have another type's tokenizer, which its settings then name."""


def read_tokenizer(folder: Path, model_type: str, size: int) -> HuggingFaceTokenizer:
    """The tokenizer of a model of `size` rows, with the ids of its special pieces."""
    found = {
        **_json(folder / "special_tokens_map.json"),
        **_json(folder / TOKENIZER_SETTINGS),
    }
    settings = Settings(found, str(folder / TOKENIZER_SETTINGS))
    kind = _kind(folder, model_type, settings)
    written = {name: _written(found.get(f"{name}_token"), kind, name) for name in _NAMES}
    tokenizer = _tokenizer(folder, kind, settings, written)
    ids = {name: tokenizer.token_to_id(text) for name, text in written.items()}
    for name, number in ids.items():
        if number is None:
            raise UserError(f"{folder}: its tokenizer has no {name} piece {written[name]!r}")
    if tokenizer.get_vocab_size() > size:
        raise UserError(
            f"{folder}: its tokenizer has {tokenizer.get_vocab_size()} pieces, but the model {size}"
        )
    special = SpecialTokens(**{f"{name}_id": number for name, number in ids.items()})
    return HuggingFaceTokenizer(
        folder, special, kind.pair_separators, kind.cls_last, size, tokenizer
    )


def _kind(folder: Path, model_type: str, settings: Settings) -> Kind:
    named = settings.values.get("tokenizer_class") or _json(folder / SETTINGS).get(
        "tokenizer_class"
    )
    name = str(named or "").removesuffix("Fast")
    if name and name not in CLASSES and not (folder / TOKENIZER).exists():
        raise UserError(
            f"{folder}: its tokenizer is a {named}, which is not supported without a {TOKENIZER}"
        )
    own = KINDS[model_type]
    return CLASSES.get(name, replace(own, lower_case=None)) if name else own


_NAMES = ("pad", "cls", "sep", "mask", "unk")


def _written(setting: Any, kind: Kind, name: str) -> str:
    """A special piece as text; files before 2024 wrap it in its properties."""
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
        raise UserError(f"{file} should hold settings by their names")
    return found


def _tokenizer(folder: Path, kind: Kind, settings: Settings, written: Mapping[str, str]) -> Any:
    tokenizers = library()
    if (folder / TOKENIZER).exists():
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER))
        except Exception as error:  # the library raises nothing more special
            raise UserError(f"{folder / TOKENIZER} cannot be read: {error}") from None
        _check_case(tokenizer, folder, kind, settings)
    elif (folder / WORDPIECE).exists():
        tokenizer = _wordpiece(folder / WORDPIECE, kind, settings, written["unk"])
    elif all((folder / name).exists() for name in BPE):
        tokenizer = _byte_level_bpe(folder, settings)
    elif models := [folder / name for name in SENTENCEPIECE if (folder / name).exists()]:
        tokenizer = _unigram(models[0], kind, settings)
    else:
        raise UserError(
            f"{folder} has no tokenizer: none of {TOKENIZER}, {WORDPIECE}, {' with '.join(BPE)}, "
            f"{', '.join(SENTENCEPIECE)}"
        )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    _add_pieces(tokenizer, folder, settings, written.values())
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}

    def is_there(name: str, text: str) -> bool:
        # An added piece would take a row that nobody trained.
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


def _check_case(tokenizer: Any, folder: Path, kind: Kind, settings: Settings) -> None:
    """Refuse two files of which one lowers capitals: the pieces would be those of either."""
    if kind.lower_case is None or isinstance(tokenizer.model, library().models.BPE):
        return
    normalizer = tokenizer.normalizer
    lowers = normalizer is not None and "a" in normalizer.normalize_str("A")
    wanted = settings.flag("do_lower_case", kind.lower_case)
    if lowers != wanted:
        silent = settings.values.get("do_lower_case") is None
        raise UserError(
            f"{folder / TOKENIZER} {'lowers' if lowers else 'keeps'} capitals, but in "
            f"{TOKENIZER_SETTINGS} do_lower_case is {wanted}{' where nothing is said' * silent}; "
            "make them agree"
        )


def _add_pieces(tokenizer: Any, folder: Path, settings: Settings, special: Collection[str]) -> None:
    """Those that were added to a vocabulary, if not all are in the tokenizer's own file."""
    found = settings.values.get("added_tokens_decoder")
    if found is None:  # files before 2023
        found = {
            number: {"content": text, "special": text in special, "normalized": text not in special}
            for text, number in _json(folder / ADDED_PIECES).items()
        }
    try:
        numbered = {int(number): library().AddedToken(**token) for number, token in found.items()}
    except (AttributeError, TypeError, ValueError):
        raise UserError(
            f"{folder}: {TOKENIZER_SETTINGS} or {ADDED_PIECES} should give added pieces by number"
        ) from None
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    for number, token in sorted(numbered.items(), key=lambda item: item[0]):
        if token.content not in known:
            (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
        if tokenizer.token_to_id(token.content) != number:
            raise UserError(
                f"{folder}: the added piece {token.content!r} should have number {number}, but has "
                f"{tokenizer.token_to_id(token.content)} behind the others"
            )


def _wordpiece(file: Path, kind: Kind, settings: Settings, unk: str) -> Any:
    tokenizers = library()
    pieces = file.read_text(encoding="utf-8").split("\n")
    numbered = {piece: i for i, piece in enumerate(pieces) if piece}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(numbered, unk_token=unk))
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


def _byte_level_bpe(folder: Path, settings: Settings) -> Any:
    tokenizers = library()
    vocabulary, merges = (str(folder / name) for name in BPE)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(vocabulary, merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=settings.flag("add_prefix_space", False)
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def _unigram(file: Path, kind: Kind, settings: Settings) -> Any:
    tokenizers = library()
    model = importlib.import_module("sentencepiece.sentencepiece_model_pb2").ModelProto()
    model.ParseFromString(file.read_bytes())
    if model.trainer_spec.model_type != model.trainer_spec.UNIGRAM:
        raise UserError(f"{file} is not a unigram model of SentencePiece")
    scores = [(piece.piece, piece.score) for piece in model.pieces]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.Unigram(scores, model.trainer_spec.unk_id, byte_fallback=False)
    )
    lower_case = settings.flag("do_lower_case", bool(kind.lower_case))
    characters = model.normalizer_spec.precompiled_charsmap
    if kind.keeps_spaces:
        tokenizer.normalizer = _light_normalizer(lower_case)
        split = [tokenizers.pre_tokenizers.Punctuation()] * settings.flag("split_by_punct", False)
    else:
        accents = settings.flag("keep_accents", False)
        tokenizer.normalizer = _normalizer(lower_case, accents, characters)
        split = [tokenizers.pre_tokenizers.WhitespaceSplit()]
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


def _normalizer(lower_case: bool, keep_accents: bool, characters: bytes) -> Any:
    """ALBERT's and XLNet's: quotes, accents and case before SentencePiece's own table."""
    normalizers = library().normalizers
    steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not keep_accents:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if lower_case:
        steps.append(normalizers.Lowercase())
    if characters:
        steps.append(normalizers.Precompiled(characters))
    return normalizers.Sequence(steps)


def _light_normalizer(lower_case: bool) -> Any:
    """DeBERTa's from version 2 on."""
    tokenizers = library()
    normalizers = tokenizers.normalizers
    spaces = tokenizers.Regex(r"\s{2,}|[\n\r\t]")
    steps = [normalizers.Lowercase()] * lower_case
    steps += [normalizers.Replace(spaces, " "), normalizers.NFC()]
    return normalizers.Sequence([*steps, normalizers.Strip(left=False, right=True)])
