"""Pruning end to end: scores before, training with gates, the pruned model."""

from pathlib import Path
from typing import Any

from rich.console import Console

from hf_nmt_interp.report.terminal import table
from hf_nmt_interp.training.job import Job


def train_and_prune(job: Job, test_before: bool) -> None:
    """Train a gated model and prune it; write both models, write and print heads and scores before and after."""
    model, tokenizer, config = job.trainer.model, job.trainer.processing_class, job.trainer.args
    results = {"before": describe(model.prune()) | (job.test() if test_before else {})}
    training = job.train()
    pruned = model.prune()
    results["pruned"] = describe(pruned) | job.test(pruned)
    if job.trainer.is_world_process_zero():
        for name, found in (("gated", model), ("pruned", pruned)):
            folder = Path(config.output_dir) / name
            found.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            job.write_card(folder, training | results["pruned"], found, shared=found is pruned)
        job.write({**training, "penalty": config.penalty, **results, "kept_heads": pruned.config.kept_heads})
        rows = []
        for name, numbers in results.items():
            row = {"model": name, "heads e/d/d-e": numbers["heads"], "parameters": f"{numbers['parameters']:,}"}
            scores = {"BLEU": numbers.get("test_bleu"), "chrF": numbers.get("test_chrf")}
            rows.append(row | {score: "" if value is None else f"{value:.2f}" for score, value in scores.items()})
        Console().print(table(rows))
        job.push(folder)  # the pruned one
    job.end()


def describe(model: Any) -> dict[str, Any]:
    """Heads of encoder self-, decoder self- and cross-attention at test time, and the parameters of the model."""
    kept = {kind: [len(heads) for heads in layers] for kind, layers in model.kept_heads().items()}
    heads = "/".join(str(sum(layers)) for layers in kept.values())
    return {"heads": heads, "heads_by_layer": kept, "parameters": model.num_parameters()}
