"""How attention learns (snell2021, sections 2 and 3): rows of tables 2 to 8 for a dataset, curves and a figure.

Trains four models: the standard LSTM (alpha, beta, Delta), one with attention frozen to uniform (beta_uf), a standard
one with a second seed (for xi), and the bag-of-words proxy (beta_px). Each is evaluated on the whole validation set at
many steps, most often at the start.

Examples:
    # Multi30k from English to German, sizes of appendix A.8: 256 tokens are about 16 pairs
    python trainer_scripts/study_attention_learning.py --output_dir runs/multi30k --train train.en train.de \
        --valid val.en val.de --max_steps 4000

    # text classification: a generated set with planted keywords, written to the output folder ...
    python trainer_scripts/study_attention_learning.py --task classification --output_dir runs/keywords \
        --tokens_per_batch 1280 --max_steps 1000

    # ... or your own text: each line is a class, a tab, and space-separated words ...
    python trainer_scripts/study_attention_learning.py --task classification --output_dir runs/reviews \
        --train train.tsv --valid valid.tsv --tokens_per_batch 5000 --max_steps 4000

    # ... or .csv, .jsonl and .parquet files, or splits of a dataset, with fields for text and class
    python trainer_scripts/study_attention_learning.py --task classification --output_dir runs/imdb \
        --dataset imdb --train train --valid test --punctuation separate --max_length 400 --max_valid 4000 --frozen

Run the same command again to resume. The output folder contains a folder for each training run, with its checkpoints
and `snapshots/`; `row.csv` with the rows of tables 5 and 3 (with BLEU also 6 and 4); `curves.csv` with all agreements
at all steps; and `curves.svg`. `--on train` also writes them for a sample of the training set (tables 7 and 8,
`*-train`). Classification also fits a logistic regression (table 11); `--frozen` trains only the attention (table 10).
With `--set output=linear`, the row also has the agreement of the best attention and beta (appendix A.1).
"""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_nmt_interp.training.arguments import option
from hf_nmt_interp.training.launch import only_run, read_arguments, run_script, training_parser

DEFAULTS = {"learning_rate": 1e-3, "lr_scheduler_type": "constant", "tokens_per_batch": 256, "max_steps": 4000}
DEFAULTS |= {"optim": "adamw_torch_fused", "save_steps": 500, "save_total_limit": 1, "logging_steps": 500}
DEFAULTS |= {"disable_tqdm": True, "report_to": "none", "max_valid": 1_000_000}


@dataclass
class StudyArguments:
    """Which models are trained and when they are evaluated."""

    task: str = option("translation", "translation or classification.")
    set: list[str] = option([], "Fields of the LSTM model's configuration, as NAME=VALUE.")
    vocab_size: int = option(8000, "Size of the SentencePiece vocabulary for both languages (translation).")
    min_count: int = option(3, "Rarer words become <unk> (classification).")
    max_length: int = option(128, "Longer training examples are dropped, others truncated.")
    overwrite_output_dir: bool = option(False, "Start over: remove earlier runs from --output_dir.")
    early_steps: list[int] = option([], "First steps to evaluate (default: those of the paper).")
    every: int = option(0, "Steps between later evaluations; 0 for the paper's value.")
    uniform_steps: int = option(0, "Training steps with uniform attention; 0 for --max_steps.")
    second_seed_steps: int = option(0, "Training steps of the second seed; 0 for --max_steps.")
    proxy_steps: int = option(0, "Training steps of the proxy; 0 for --max_steps.")
    frozen: bool = option(False, "Also train a model with everything but the attention frozen (table 10).")
    frozen_steps: int = option(0, "Training steps of that model; 0 for --max_steps.")
    performance: str = option("accuracy", "Metric for xi: accuracy of words, or bleu of greedy translations as well.")
    bleu_sentences: int = option(200, "Sentences translated for BLEU at each evaluation.")
    on: list[str] = option(["valid"], "Sets to evaluate on: valid, train (a sample of --max_valid examples) or both.")
    text_field: str = option("text", "Name of the text field in --dataset, .csv, .jsonl or .parquet (classification).")
    label_field: str = option("label", "Name of the class field.")
    embeddings: str | None = option(None, "Word vectors to start from, in GloVe's format (classification).")
    paper: str | None = option(None, "Dataset of the paper whose rows are printed below ours, e.g. Multi30k.")
    valid_tokens: int = option(2000, "Tokens per validation batch and side.")


def make_parser() -> Any:
    parser = training_parser(StudyArguments, "translation.TranslationConfig")
    parser.set_defaults(**DEFAULTS)
    return parser


def run_study(parser: Any, study: Any, task: Any, config: Any) -> None:
    """Run the training runs that are not complete, and write the tables."""
    from transformers import set_seed

    from hf_nmt_interp.report.attention_learning import write_learning
    from hf_nmt_interp.studies.attention_learning import RUNS, is_complete
    from hf_nmt_interp.training.attention_tasks import train_run

    folder = Path(config.output_dir)
    for name, run in RUNS.items():
        if name == "frozen" and not study.frozen:
            continue
        steps = getattr(study, f"{name}_steps", 0) or config.max_steps
        if is_complete(folder / name, steps, study.on):
            continue
        own = ["--output_dir", str(folder / name), "--max_steps", str(steps), "--seed", str(config.seed + run.seed)]
        own_config = read_arguments(parser, [*sys.argv[1:], *own])[2]
        set_seed(own_config.seed)
        train_run(name, study, task, own_config)
    task.finish(folder, study.on)
    print(write_learning(folder, study.paper, study.performance, study.on))


def main() -> None:
    parser = make_parser()
    study, data, config = read_arguments(parser)

    from hf_nmt_interp.studies.attention_learning import RUNS
    from hf_nmt_interp.training.attention_tasks import make_task
    from hf_nmt_interp.training.provenance import check_run, describe_run, keep_run

    with only_run(config.output_dir):
        for name in RUNS if study.overwrite_output_dir else ():
            shutil.rmtree(Path(config.output_dir, name), ignore_errors=True)
        check_run(about := describe_run(study, data, config), config, study.overwrite_output_dir)
        task = make_task(study, data, config)
        keep_run(about, config)
        run_study(parser, study, task, config)


if __name__ == "__main__":
    run_script(main)
