"""Trainers of tiny models, for the tests of all trainers."""

from functools import partial
from random import Random

from transformers import TrainerCallback

from hf_nmt_interp.models.gated import GatedMarianConfig, GatedMarianMTModel
from hf_nmt_interp.training.batching import pad_batch
from hf_nmt_interp.training.data import Restartable
from hf_nmt_interp.training.l0 import L0Config, L0Trainer
from hf_nmt_interp.training.translation import TranslationConfig, TranslationTrainer
from tests.tiny_models import FIRST_WORD, VOCABULARY, tiny_model

PAD = VOCABULARY - 1
BART_LIKE = dict.fromkeys(("dropout", "attention_dropout", "encoder_layerdrop", "decoder_layerdrop"), 0.0)
DROPOUT = {"marian": BART_LIKE, "bart": BART_LIKE, "m2m100": BART_LIKE, "t5": {"dropout_rate": 0.0}}


def random_examples(number, seed=0):
    rng = Random(seed)

    def sentence():
        return [rng.randrange(FIRST_WORD, PAD) for _ in range(rng.randrange(2, 9))] + [0]

    return [{"input_ids": sentence(), "labels": sentence()} for _ in range(number)]


EXAMPLES = random_examples(60)  # 14 batches of 40 tokens
STREAM = Restartable(lambda: iter(EXAMPLES))


def make_trainer(folder, train=EXAMPLES, *, family="marian", seed=0, dropout=0.0, callbacks=(), **options):
    settings = {
        "tokens_per_batch": 40,
        "noam_scale": 0.5,
        "warmup_steps": 4,
        "max_steps": 8,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
    model = tiny_model(family, seed=seed, **DROPOUT[family] | ({"dropout": dropout} if dropout else {}))
    return TranslationTrainer(
        model=model,
        args=TranslationConfig(str(folder), **(settings | options)),
        train_dataset=train,
        eval_dataset=random_examples(7, seed=1),
        data_collator=partial(pad_batch, pad_id=model.config.pad_token_id),
        callbacks=list(callbacks),
    )


def logged(trainer, name="loss"):
    return {row["step"]: row[name] for row in trainer.state.log_history if name in row}


class Kill(TrainerCallback):
    """Stops the run after a step, before anything more is saved."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise KeyboardInterrupt


FEW = [{"input_ids": [5 + i, 8, 9, 0], "labels": [20 + i, 7, 6, 0]} for i in range(8)]


def tiny_gated(kinds="all", **overrides):
    plain = tiny_model("marian", **({"dropout": 0.0} | overrides))  # nothing random but gates
    model = GatedMarianMTModel(GatedMarianConfig(**plain.config.to_dict(), gated_attentions=kinds))
    model.load_state_dict(plain.state_dict(), strict=False)
    return model


def make_l0_trainer(folder, model=None, examples=FEW, **settings):
    model = tiny_gated(settings.get("gated_attentions", "all")) if model is None else model
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1, "save_strategy": "no"}
    config = L0Config(output_dir=str(folder), **(quiet | {"tokens_per_batch": 16, "max_steps": 2} | settings))
    collate = partial(pad_batch, pad_id=model.config.pad_token_id)
    return L0Trainer(model=model, args=config, train_dataset=examples, data_collator=collate)
