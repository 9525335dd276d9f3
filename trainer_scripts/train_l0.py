"""Prune attention heads of a translator by L0 gates (voita2019, section 6), and test what is left.

Examples:
    # the encoder's heads, as in section 6.2: the decoder stays as it is
    python trainer_scripts/train_l0.py --model demo:en-de --output_dir runs/l0-encoder --train train.en train.de \
        --test test.en test.de --gated_attentions encoder --freeze decoder --penalty 0.005 --learning_rate 5e-4 \
        --warmup_steps 50 --tokens_per_batch 800 --max_steps 600 --save_steps 100 --save_total_limit 1

    # heads of all kinds, as in section 6.3
    python trainer_scripts/train_l0.py --model demo:en-de --output_dir runs/l0-all --train train.en train.de \
        --test test.en test.de --gated_attentions all --penalty 0.005 --learning_rate 5e-4 --max_steps 600

    accelerate launch --num_processes 2 trainer_scripts/train_l0.py ...   (the same arguments)

    # the same sparse model from scratch (table 2, right column)
    python trainer_scripts/train_translation.py --heads runs/l0-all/pruned ...

Starts from any plain, gated or pruned Marian, BART, mBART, M2M100/NLLB or T5 checkpoint. Data are given as for
`train_translation.py`. The same command run again goes on from the last checkpoint in --output_dir. At the end there
are `gated/` and `pruned/`, which `from_pretrained` loads, `gates.csv` with every gate over time, and `results.json`
with heads, parameters and scores of the translator before and pruned; with its gates of 0 and 1 it translates alike.

A larger --penalty closes more heads. In runs like the first command above (docs/pruning.md), 17, 5 and 2 of the box
translator's 32 encoder heads are left with penalties of 0.002, 0.005 and 0.02. A gate moves by at most about
--gate_learning_rate a step, and has to get from --gate_init below 0 to close its head; let the run go on several times
as long as that takes, so that the weights adapt to the heads that are left.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_nmt_interp.training.arguments import DataArguments, check_data
from hf_nmt_interp.training.job import Run
from hf_nmt_interp.training.launch import read_arguments, run_script


@dataclass
class ModelArguments:
    """The translator to prune."""

    model: str = field(default="demo:en-de", metadata={"help": "Checkpoint (folder, Hub id or demo:en-de)."})
    gate_init: float = field(
        default=2.0, metadata={"help": "First log_alpha of new gates, open above 0; gates nearer to 0 act sooner."}
    )
    max_length: int = field(
        default=128, metadata={"help": "Most tokens of a side; longer training pairs are dropped, test pairs cut."}
    )
    test_before: bool = field(
        default=True, metadata={"help": "Score the test with the translator as it comes, too, before the training."}
    )


def make_parser() -> Any:
    from transformers import HfArgumentParser

    from hf_nmt_interp.training.l0 import L0Config

    kinds: Any = (ModelArguments, DataArguments, L0Config)
    return HfArgumentParser(kinds, allow_abbrev=False)


def describe(model: Any) -> dict[str, Any]:
    """Heads of encoder self-, decoder self- and cross-attention at test time, and the parameters of the model."""
    kept = {kind: [len(heads) for heads in layers] for kind, layers in model.kept_heads().items()}
    heads = "/".join(str(sum(layers)) for layers in kept.values())
    return {"heads": heads, "heads_by_layer": kept, "parameters": model.num_parameters()}


def print_table(results: dict[str, dict[str, Any]]) -> None:
    """Heads, parameters and scores of each model."""
    from rich.console import Console

    from hf_nmt_interp.report.terminal import table

    def score(found: dict[str, Any], name: str) -> str:
        return f"{found[name]:.2f}" if name in found else ""

    rows = [
        {
            "model": name,
            "heads e/d/d-e": found["heads"],
            "parameters": f"{found['parameters']:,}",
            "BLEU": score(found, "test_bleu"),
            "chrF": score(found, "test_chrf"),
        }
        for name, found in results.items()
    ]
    Console().print(table(rows))


def main() -> None:
    from hf_nmt_interp.training.launch import start_missing_processes

    start_missing_processes()
    model_args, data, config = read_arguments(make_parser())

    from transformers import set_seed

    from hf_nmt_interp.decoding.languages import set_languages
    from hf_nmt_interp.models.loading import load_tokenizer
    from hf_nmt_interp.training.l0 import L0Trainer, load_gated

    set_seed(config.seed)
    check_data(data, config)
    model = load_gated(model_args.model, config.gated_attentions, gate_init=model_args.gate_init)
    tokenizer = load_tokenizer(model_args.model)
    set_languages(model, tokenizer, *data.codes)
    run = Run(L0Trainer, model, tokenizer, data, config, model_args.max_length, model_args.model)
    results = {"before": describe(model.prune()) | (run.test() if data.test and model_args.test_before else {})}
    training = run.train()
    pruned = model.prune()
    results["pruned"] = describe(pruned) | (run.test(pruned) if data.test else {})
    if run.trainer.is_world_process_zero():
        for name, found in (("gated", model), ("pruned", pruned)):
            folder = Path(config.output_dir) / name
            found.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            run.write_card(folder, training | results["pruned"], found, shared=found is pruned)
        run.write({**training, "penalty": config.penalty, **results, "kept_heads": pruned.config.kept_heads})
        print_table(results)
        run.push(folder)  # the pruned one
    run.end()


if __name__ == "__main__":
    run_script(main)
