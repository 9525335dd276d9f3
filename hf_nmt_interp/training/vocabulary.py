"""SentencePiece vocabularies in the format of `MarianTokenizer`."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from shutil import copyfile
from typing import Any

from transformers import MarianTokenizer

from hf_nmt_interp.errors import InputError


def train_marian_tokenizer(
    sentences: Iterable[str],  # of both languages
    folder: str | Path,  # gets source.spm, target.spm (the same model), vocab.json and tokenizer_config.json
    vocab_size: int = 8000,  # number of ids, including `</s>`, `<unk>` and `<pad>`
    source_lang: str = "en",  # language code, kept in the tokenizer's settings
    target_lang: str = "de",
    max_length: int = 256,  # maximum tokens of a sentence, also kept
) -> MarianTokenizer:
    """Train one SentencePiece model for both languages and save it in `folder` as a `MarianTokenizer`."""
    from sentencepiece import SentencePieceProcessor

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "source.spm"
    _train_pieces(sentences, model, vocab_size)
    copyfile(model, folder / "target.spm")
    spm = SentencePieceProcessor(model_file=str(model))
    pieces = ["</s>", "<unk>", *(spm.id_to_piece(i) for i in range(1, spm.get_piece_size())), "<pad>"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False, indent=0), encoding="utf-8")
    files: Any = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    settings: dict[str, Any] = {"source_lang": source_lang, "target_lang": target_lang, "model_max_length": max_length}
    tokenizer = MarianTokenizer(*files, **settings)
    tokenizer.save_pretrained(folder)
    return tokenizer


def _train_pieces(sentences: Iterable[str], model: Path, vocab_size: int) -> None:
    """Write a SentencePiece model; no file is left behind if training fails."""
    from sentencepiece import SentencePieceTrainer

    refused: list[InputError] = []

    def readable() -> Iterator[str]:  # SentencePiece raises RuntimeError for every error
        try:
            yield from sentences
        except InputError as error:
            refused.append(error)
            raise

    with model.open("wb") as writer:
        try:
            settings: Any = {"bos_id": -1, "eos_id": -1, "unk_id": 0, "character_coverage": 1.0, "minloglevel": 2}
            settings["vocab_size"] = vocab_size - 2  # </s> and <pad> are added here
            SentencePieceTrainer.train(sentence_iterator=readable(), model_writer=writer, **settings)
        except RuntimeError as error:
            model.unlink()
            if refused:
                raise refused[0] from None
            reason = str(error).rsplit("] ", 1)[-1].strip() or "no text, or lines that are too long"
            remedy = f"SentencePiece, which gets 2 less: {reason}"
            raise InputError("vocab_size", vocab_size, "does not fit the training text", remedy) from error
