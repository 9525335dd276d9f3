"""Saliency of all steps and both sides against Inseq's `input_x_gradient`, at base size, in one process.

Inseq may live in an environment of its own, so that it does not decide the versions used here:

    HF_NMT_INTERP_INSEQ_PYTHON=/path/to/that/python pytest -s -m benchmark tests/benchmarks/test_saliency_speed.py

Times are seconds of processor time of one thread, the fastest of a few alternating runs, so that other work on the
machine disturbs both sides little and alike. The model does not scale its embeddings: Inseq would scale those of the
decoder twice.
"""

import json
import time
from importlib.metadata import version

import pytest

from tests.benchmarks.base_size import base_model, run_with_inseq, word_tokenizer

SENTENCES, SOURCE, TARGET, COPIES = 16, 20, 23, 30


def measure() -> dict:
    """Fastest times of both sides, and their largest difference of values relative to the largest value."""
    import inseq
    import torch

    from hf_nmt_interp.attribution import Saliency

    torch.set_num_threads(1)
    model = base_model()
    model.set_attn_implementation("eager")  # what Inseq chooses for the models that it loads
    source, target = (torch.randint(3, 32_000, (SENTENCES, length)) for length in (SOURCE, TARGET))
    source[:, -1] = target[:, -1] = model.config.eos_token_id
    texts = [[" ".join(f"w{i}" for i in row[:-1]) for row in ids.tolist()] for ids in (source, target)]
    other = inseq.load_model(model, "input_x_gradient", tokenizer=word_tokenizer())

    def theirs(n, size):
        return other.attribute(
            texts[0][:n], texts[1][:n], attribute_target=True, batch_size=size, show_progress=False
        ).sequence_attributions

    def ours(n, smoothgrad=0):
        return Saliency(model, score="probability", smoothgrad=smoothgrad)(source[:n], target[:n])

    seconds: dict[str, float] = {}

    def timed(name, run, *arguments):
        start = time.process_time()
        result = run(*arguments)
        seconds[name] = min(seconds.get(name, float("inf")), time.process_time() - start)
        return result

    for _ in range(5):
        (found,) = timed("Inseq, 1 sentence", theirs, 1, 1)
        scores = timed("ours, 1 sentence", ours, 1)
    for _ in range(2):
        for size in (8, 16):
            timed(f"Inseq, batches of {size}", theirs, SENTENCES, size)
        timed("ours, 16 sentences", ours, SENTENCES)
        timed("ours, SmoothGrad", ours, 1, COPIES)
        timed("ours, single passes", lambda: [ours(1) for _ in range(COPIES)])

    decoder = torch.cat([scores.start[0, :, None], scores.prefix[0]], 1).T  # [T + 1, T]
    pairs = [(found.source_attributions, scores.source[0].T), (found.target_attributions, decoder)]
    pairs = [(theirs.sum(-1).nan_to_num(), own) for theirs, own in pairs]
    difference = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
    return {"seconds": seconds, "difference": difference, "versions": [version("inseq"), torch.__version__]}


@pytest.mark.benchmark
def test_faster_than_inseq():
    result = run_with_inseq(__file__)
    seconds = result["seconds"]
    batch = min(value for name, value in seconds.items() if "batches" in name) / SENTENCES
    rows = [
        ("1 sentence, Inseq", seconds["Inseq, 1 sentence"], seconds["ours, 1 sentence"]),
        ("1 of 16 sentences, Inseq's best batch", batch, seconds["ours, 16 sentences"] / SENTENCES),
        (f"SmoothGrad, {COPIES} single passes", seconds["ours, single passes"], seconds["ours, SmoothGrad"]),
    ]
    print("\nInseq {}, torch {}, values differ by {:.0e}".format(*result["versions"], result["difference"]))
    print(f"{'seconds, compared with':37} |  they |  ours | ratio")
    for name, before, after in rows:
        print(f"{name:37} | {before:5.2f} | {after:5.2f} | {before / after:5.2f}")
    assert result["difference"] < 1e-3
    assert rows[0][1] > 5 * rows[0][2]
    assert rows[1][1] > 2 * rows[1][2]
    assert rows[2][1] > rows[2][2]


if __name__ == "__main__":
    print(json.dumps(measure()))
