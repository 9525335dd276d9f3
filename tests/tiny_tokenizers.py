"""Tiny tokenizers of every supported kind, trained offline in well under a second, for tests that need real subwords.

Each builder saves its tokenizer in `folder` and returns it as `from_pretrained(folder)` loads it.
"""

import json
from collections.abc import Callable
from pathlib import Path

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import (
    BartTokenizer,
    BertTokenizer,
    M2M100Tokenizer,
    MarianTokenizer,
    MBart50Tokenizer,
    MBartTokenizer,
    NllbTokenizer,
    PreTrainedTokenizerBase,
    SeamlessM4TTokenizer,
    T5Tokenizer,
)

ENGLISH = [
    "The old baker opens his shop before the sun comes up.",
    "Two children are looking for shells on the beach.",
    "My neighbour doesn't like the noise of the trains, but she loves the garden.",
    "Where did you put the keys of the blue car?",
    "A small dog sleeps under the kitchen table!",
    "We walked through the forest and talked about the weather.",
    'She said: "The river is too cold for swimming."',
    "In 1998 the bridge was rebuilt for 250 workers and their families.",
]
GERMAN = [
    "Der alte Bäcker öffnet seinen Laden, bevor die Sonne aufgeht.",
    "Zwei Kinder suchen am Strand nach Muscheln.",
    "Meine Nachbarin mag den Lärm der Züge nicht, aber sie liebt den Garten.",
    "Wohin hast du die Schlüssel des blauen Autos gelegt?",
    "Ein kleiner Hund schläft unter dem Küchentisch!",
    "Wir gingen durch den Wald und sprachen über das Wetter.",
    'Sie sagte: "Der Fluss ist zu kalt zum Schwimmen."',
    "1998 wurde die Brücke für 250 Arbeiter und ihre Familien neu gebaut, größer und schöner.",
]


def _train_spm(path: Path, sentences: list[str], vocab_size: int = 150, **options) -> list[str]:
    """Train a SentencePiece model, save it, return its pieces in order."""
    settings = {"vocab_size": vocab_size, "minloglevel": 2, "num_threads": 1, "hard_vocab_limit": False} | options
    with path.open("wb") as writer:
        SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=writer, **settings)
    spm = SentencePieceProcessor(model_file=str(path))
    return [spm.id_to_piece(i) for i in range(spm.get_piece_size())]


def _write_vocabulary(path: Path, pieces: list[str]) -> str:
    path.write_text(json.dumps({piece: i for i, piece in enumerate(dict.fromkeys(pieces))}), encoding="utf-8")
    return str(path)


def make_marian_tokenizer(
    folder: Path, byte_fallback: bool = False, separate_vocabs: bool = False, languages: tuple[str, ...] = ("de", "fr")
) -> MarianTokenizer:
    """Slow tokenizer with source.spm, target.spm and `>>de<<` codes; </s> is 0, <unk> 1, <pad> last, as usual."""
    options = {"bos_id": -1, "eos_id": -1, "unk_id": 0, "byte_fallback": byte_fallback}
    vocab_size = 400 if byte_fallback else 150
    source, target = (
        _train_spm(folder / name, sentences, vocab_size, **options)[1:]
        for name, sentences in (("source.spm", ENGLISH), ("target.spm", GERMAN))
    )
    codes = [f">>{language}<<" for language in languages]
    shared = [] if separate_vocabs else target
    paths = {"vocab": _write_vocabulary(folder / "vocab.json", ["</s>", "<unk>", *source, *shared, *codes, "<pad>"])}
    if separate_vocabs:
        pieces = ["</s>", "<unk>", *target, "<pad>"]
        paths["target_vocab_file"] = _write_vocabulary(folder / "target_vocab.json", pieces)
    spms = {"source_spm": str(folder / "source.spm"), "target_spm": str(folder / "target.spm")}
    languages_kept = {"source_lang": "en", "target_lang": "de"}
    MarianTokenizer(**spms, **paths, **languages_kept, separate_vocabs=separate_vocabs).save_pretrained(folder)
    return MarianTokenizer.from_pretrained(folder)


def make_m2m100_tokenizer(folder: Path, byte_fallback: bool = False) -> M2M100Tokenizer:
    """Slow tokenizer with SentencePiece BPE and `__de__` codes."""
    vocab_size = 400 if byte_fallback else 150
    options = {"model_type": "bpe", "byte_fallback": byte_fallback}
    pieces = _train_spm(folder / "sentencepiece.bpe.model", ENGLISH + GERMAN, vocab_size, **options)
    vocab = _write_vocabulary(folder / "vocab.json", ["<s>", "<pad>", "</s>", "<unk>", *pieces[3:]])
    tokenizer = M2M100Tokenizer(vocab, str(folder / "sentencepiece.bpe.model"), src_lang="en", tgt_lang="de")
    tokenizer.save_pretrained(folder)
    return M2M100Tokenizer.from_pretrained(folder)


def make_nllb_tokenizer(folder: Path) -> NllbTokenizer:
    """Tokenizers-backed SentencePiece BPE with `deu_Latn` codes."""
    _train_spm(folder / "sentencepiece.bpe.model", ENGLISH + GERMAN, model_type="bpe")
    NllbTokenizer.from_pretrained(
        folder, src_lang="eng_Latn", tgt_lang="deu_Latn", extra_special_tokens=["eng_Latn", "deu_Latn"]
    ).save_pretrained(folder)
    return NllbTokenizer.from_pretrained(folder)


def make_mbart_tokenizer(folder: Path) -> MBartTokenizer:
    """Tokenizers-backed SentencePiece unigram with `de_DE` codes."""
    _train_spm(folder / "sentencepiece.bpe.model", ENGLISH + GERMAN)
    MBartTokenizer.from_pretrained(folder, src_lang="en_XX", tgt_lang="de_DE").save_pretrained(folder)
    return MBartTokenizer.from_pretrained(folder)


def make_mbart50_tokenizer(folder: Path) -> MBart50Tokenizer:
    """Tokenizers-backed SentencePiece unigram with `de_DE` codes of 52 languages."""
    _train_spm(folder / "sentencepiece.bpe.model", ENGLISH + GERMAN)
    MBart50Tokenizer.from_pretrained(folder, src_lang="en_XX", tgt_lang="de_DE").save_pretrained(folder)
    return MBart50Tokenizer.from_pretrained(folder)


def make_seamless_tokenizer(folder: Path) -> SeamlessM4TTokenizer:
    """Tokenizers-backed SentencePiece BPE with `__deu__` codes; the target language is French unless it is chosen."""
    _train_spm(folder / "sentencepiece.bpe.model", ENGLISH + GERMAN, model_type="bpe")
    codes = ["__eng__", "__deu__", "__fra__", "<MINED_DATA>"]
    SeamlessM4TTokenizer.from_pretrained(folder, extra_special_tokens=codes).save_pretrained(folder)
    return SeamlessM4TTokenizer.from_pretrained(folder)


def make_t5_tokenizer(folder: Path) -> T5Tokenizer:
    """Tokenizers-backed SentencePiece unigram, ids as in the Hub's: <pad> 0, </s> 1, <unk> 2, `<extra_id_*>` last."""
    _train_spm(folder / "spiece.model", ENGLISH + GERMAN, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    T5Tokenizer.from_pretrained(folder, extra_ids=10).save_pretrained(folder)
    return T5Tokenizer.from_pretrained(folder)


def make_bart_tokenizer(folder: Path) -> BartTokenizer:
    """Byte-level BPE."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(ENGLISH + GERMAN, trainer)
    model = json.loads(backend.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    BartTokenizer(vocab=model["vocab"], merges=merges).save_pretrained(folder)
    return BartTokenizer.from_pretrained(folder)


def make_bert_tokenizer(folder: Path) -> BertTokenizer:
    """WordPiece, cased."""
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=specials, show_progress=False)
    backend.train_from_iterator(ENGLISH + GERMAN, trainer)
    BertTokenizer(vocab=backend.get_vocab(), do_lower_case=False).save_pretrained(folder)
    return BertTokenizer.from_pretrained(folder)


BUILDERS: dict[str, Callable[[Path], PreTrainedTokenizerBase]] = {
    "marian": make_marian_tokenizer,
    "marian_bytes": lambda folder: make_marian_tokenizer(folder, byte_fallback=True),
    "marian_separate": lambda folder: make_marian_tokenizer(folder, separate_vocabs=True),
    "m2m100": make_m2m100_tokenizer,
    "m2m100_bytes": lambda folder: make_m2m100_tokenizer(folder, byte_fallback=True),
    "nllb": make_nllb_tokenizer,
    "mbart": make_mbart_tokenizer,
    "mbart50": make_mbart50_tokenizer,
    "seamless": make_seamless_tokenizer,
    "t5": make_t5_tokenizer,
    "bart": make_bart_tokenizer,
    "bert": make_bert_tokenizer,
}
