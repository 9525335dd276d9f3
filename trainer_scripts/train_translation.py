"""Train a Marian translator from scratch, or go on from any seq2seq checkpoint.

Examples:
    python trainer_scripts/train_translation.py --output_dir runs/en-de --source_lang en --target_lang de \
        --train train.en train.de --valid valid.en valid.de --test test.en test.de \
        --tokens_per_batch 4096 --noam_scale 2 --warmup_steps 4000 --max_steps 20000 --label_smoothing_factor 0.1 \
        --save_steps 1000 --save_total_limit 5 --average_last 5 --eval_strategy steps --eval_steps 1000

    accelerate launch --num_processes 2 trainer_scripts/train_translation.py ...   (the same arguments)

Data: two line-parallel text files, or one JSONL file, or `--dataset NAME` for any `datasets` set. The same command
run again goes on from the last checkpoint in `--output_dir`.
"""

from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from transformers import HfArgumentParser

from hf_nmt_interp.training.translation import TranslationConfig


@dataclass
class ModelArguments:
    """The translator: from a checkpoint, or new with these sizes."""

    model: str | None = field(default=None, metadata={"help": "Checkpoint (folder or Hub id) to go on from."})
    vocab_size: int = field(default=8000, metadata={"help": "SentencePiece pieces of a new model, both languages."})
    d_model: int = field(default=256, metadata={"help": "Width."})
    layers: int = field(default=4, metadata={"help": "Layers of the encoder, and of the decoder."})
    heads: int = field(default=8, metadata={"help": "Attention heads."})
    ffn_dim: int = field(default=512, metadata={"help": "Width of the feed-forward layers."})
    dropout: float = field(default=0.1, metadata={"help": "Dropout on the residual branches."})
    max_length: int = field(default=128, metadata={"help": "Most tokens of a sentence; longer training pairs are left out."})


@dataclass
class DataArguments:
    """Parallel text."""

    source_lang: str = field(default="en", metadata={"help": "Source language code."})
    target_lang: str = field(default="de", metadata={"help": "Target language code."})
    train: list[str] = field(default_factory=list, metadata={"help": "Two text files, or one JSONL file."})
    valid: list[str] = field(default_factory=list, metadata={"help": "As train."})
    test: list[str] = field(default_factory=list, metadata={"help": "As train; scored once at the end."})
    dataset: str | None = field(default=None, metadata={"help": "`datasets` set (Hub id or folder) instead of files."})
    dataset_config: str | None = field(default=None, metadata={"help": "Its configuration."})
    streaming: bool = field(default=False, metadata={"help": "Stream the training set; needs max_steps."})
    max_valid: int = field(default=500, metadata={"help": "Validation pairs that are translated at an evaluation."})
    vocabulary_sentences: int = field(default=1_000_000, metadata={"help": "Training pairs the vocabulary is made of."})


def make_parser() -> HfArgumentParser:
    return HfArgumentParser((ModelArguments, DataArguments, TranslationConfig))


def read_split(data: DataArguments, split: str):
    """Pairs of a split: a list, or for a streamed training set a re-iterable."""
    from hf_nmt_interp.text.corpus import read_pairs

    return list(read_pairs(*getattr(data, split)))


def new_model(arguments: ModelArguments, tokenizer):
    """A MarianMT model with random weights."""
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {
            "layers": arguments.layers,
            "attention_heads": arguments.heads,
            "ffn_dim": arguments.ffn_dim,
        }.items()
    }
    config = MarianConfig(
        vocab_size=len(tokenizer),
        d_model=arguments.d_model,
        **sides,
        dropout=arguments.dropout,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=2 * arguments.max_length,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        forced_eos_token_id=tokenizer.eos_token_id,
    )
    model = MarianMTModel(config)
    model.generation_config = GenerationConfig(
        num_beams=4,
        max_length=arguments.max_length,
        pad_token_id=config.pad_token_id,
        eos_token_id=config.eos_token_id,
        forced_eos_token_id=config.eos_token_id,
        decoder_start_token_id=config.decoder_start_token_id,
        bad_words_ids=[[config.pad_token_id]],
    )
    return model


def main() -> None:
    model_args, data, config = make_parser().parse_args_into_dataclasses()

    from functools import partial

    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, set_seed
    from transformers.trainer_utils import get_last_checkpoint

    from hf_nmt_interp.training.batching import pad_batch
    from hf_nmt_interp.training.translation import TranslationTrainer
    from hf_nmt_interp.training.vocabulary import train_marian_tokenizer

    set_seed(config.seed)
    out = Path(config.output_dir)
    train_pairs = read_split(data, "train")
    if model_args.model:
        tokenizer = AutoTokenizer.from_pretrained(model_args.model)
        model = AutoModelForSeq2SeqLM.from_pretrained(model_args.model)
    else:
        vocabulary = out / "tokenizer"
        with config.main_process_first(desc="vocabulary"):
            if not (vocabulary / "tokenizer_config.json").is_file():
                sentences = (side for pair in islice(train_pairs, data.vocabulary_sentences) for side in pair)
                train_marian_tokenizer(
                    sentences, vocabulary, model_args.vocab_size, data.source_lang, data.target_lang
                )
        tokenizer = AutoTokenizer.from_pretrained(vocabulary)
        model = new_model(model_args, tokenizer)

    def encode(pairs):
        sources, targets = zip(*pairs, strict=True)
        encoded = tokenizer(list(sources), text_target=list(targets))
        return [
            {"input_ids": s, "labels": t} for s, t in zip(encoded["input_ids"], encoded["labels"], strict=True)
        ]

    train_set = [
        e for e in encode(train_pairs) if max(len(e["input_ids"]), len(e["labels"])) <= model_args.max_length
    ]
    valid_pairs = read_split(data, "valid")[: data.max_valid] if data.valid else []
    references: list[str] = [target for _, target in valid_pairs]

    def metrics(prediction):
        import numpy as np
        import sacrebleu

        ids = np.where(prediction.predictions < 0, tokenizer.pad_token_id, prediction.predictions)
        texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
        bleu, chrf = sacrebleu.corpus_bleu(texts, [references]), sacrebleu.corpus_chrf(texts, [references])
        return {"bleu": bleu.score, "chrf": chrf.score}

    trainer = TranslationTrainer(
        model=model,
        args=config,
        train_dataset=train_set,
        eval_dataset=encode(valid_pairs) if valid_pairs else None,
        data_collator=partial(pad_batch, pad_id=tokenizer.pad_token_id),
        processing_class=tokenizer,
        compute_metrics=metrics,
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(config.output_dir) if out.is_dir() else None)
    trainer.save_model()
    if data.test:
        test_pairs = read_split(data, "test")
        references[:] = [target for _, target in test_pairs]
        result = trainer.predict(encode(test_pairs), metric_key_prefix="test", num_beams=4)
        trainer.log_metrics("test", result.metrics)
        trainer.save_metrics("test", result.metrics)


if __name__ == "__main__":
    main()
