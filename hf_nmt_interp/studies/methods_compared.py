"""All methods side by side: do the words they rank first matter, how well do they align words, and what do they cost?

Definitions: docs/methods.md, Faithfulness and detached sources.
"""

import ctypes
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psutil
import torch

from hf_nmt_interp.analysis.alignment import extract_links, make_aligner, own_method, word_scores
from hf_nmt_interp.attribution.api import explain
from hf_nmt_interp.attribution.base import AttributionMethod
from hf_nmt_interp.attribution.parsing import Named
from hf_nmt_interp.attribution.registry import METHODS, make_method, parse_method, word_settings
from hf_nmt_interp.decoding.pairs import Pairs, Text
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.metrics.aer.rate import alignment_error_rate, error_margin
from hf_nmt_interp.metrics.faithfulness import compare, ranked_rows
from hf_nmt_interp.models.loading import weights_fingerprint
from hf_nmt_interp.text.files import write_whole
from hf_nmt_interp.text.fingerprints import versions
from hf_nmt_interp.text.pharaoh import Links
from hf_nmt_interp.text.progress import track

Row = dict[str, Any]
Gold = tuple[Sequence[Text], Sequence[Text], Sequence[Links], Sequence[Links]]  # sources, targets, sure, possible
T = TypeVar("T")
OWN = "align"
VARIANTS = ("lrp:rule=attnlrp", "saliency:aggregate=li2016")  # settings with clearly different results
_SHORT = {"comprehensiveness": "compr", "sufficiency": "suff", "c_margin": "c_ci", "s_margin": "s_ci"}  # for terminals
_RESET_PEAK = Path("/proc/self/clear_refs")  # Linux


def methods_for(model: Any) -> dict[str, Named]:
    """Every method that supports a model, by name, and `VARIANTS`."""
    asked = {text: parse_method(text) for text in (*METHODS, *VARIANTS)}
    return {text: (name, own) for text, (name, own) in asked.items() if METHODS[name].fits(model)}


def compare_methods(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    gold: Gold,
    methods: Mapping[str, Named] | None = None,
    batch_size: int = 16,
    generate: dict[str, Any] | None = None,
    folder: str | Path | None = None,
) -> list[Row]:
    """A row for each method, and for the default attention of `align`.

    Args:
        model: the translator.
        tokenizer: its tokenizer.
        sources: sentences that the model translates; source words are erased from them.
        gold: sentence pairs with their sure and possible links, for error rates and costs.
        methods: name and settings by label; None for `methods_for(model)`.
        batch_size: sentences at a time.
        generate: arguments of `generate()`.
        folder: folder for the results of each method, which the same call with the same weights reuses.

    Returns:
        Rows with the columns of `ranked_rows` under short names (`compr`, `c_ci`, `suff`, `s_ci`), `aer` with half its
        95 % confidence interval `a_ci`, mean processor time `sec` per gold pair, and peak memory `MB` beyond that of
        the model.
    """
    asked = methods_for(model) if methods is None else methods
    if not sources or not gold[0]:
        raise InputError("sources" if not sources else "gold", None, "is empty", "give at least one")
    pairs = Pairs.force(model, tokenizer, *gold[:2])
    settings = {label: (name, word_settings(name, own)) for label, (name, own) in asked.items()}
    made = {label: make_method(model, name, **own) for label, (name, own) in settings.items()}
    settings[OWN] = own_method(model, pairs, batch_size) or ("attention", {})
    made[OWN] = make_aligner(model, settings[OWN][0], **settings[OWN][1])
    links = [[sorted(found) for found in some] for some in gold[2:]]
    about: list[Any] = [versions(), str(model.dtype), str(model.device), list(sources), gold[:2], links, generate]
    about += [batch_size] if folder is None else [batch_size, weights_fingerprint(model)]

    def kept(kind: str, label: str, compute: Callable[[], Any]) -> Any:
        return compute() if folder is None else saved(folder, kind, label, [*about, settings.get(label)], compute)

    def aligned(method: AttributionMethod) -> Row:
        results, cost = measured(partial(explain, method, pairs, batch_size), model.device, len(pairs))
        links = [extract_links(word_scores(r.source, r.source_side, r.target_side)) for r in results]
        error, margin = alignment_error_rate(links, *gold[2:])["aer"], error_margin(links, *gold[2:])
        return {"aer": 100 * error, "a_ci": None if margin is None else 100 * margin} | cost

    more = {
        label: kept("aer", label, partial(aligned, method)) for label, method in track(list(made.items()), "Aligning")
    }
    found = compare(model, tokenizer, sources, made, batch_size, generate, partial(kept, "erased"))
    empty = dict.fromkeys(next(iter(more.values())))
    return [
        {_SHORT.get(key, key): value for key, value in (row | more.get(row["method"], empty)).items()}
        for row in ranked_rows(found)
    ]


def saved(folder: str | Path, kind: str, label: str, about: Sequence[Any], compute: Callable[[], Any]) -> Any:
    """The value saved under these names for the same `about`; otherwise it is computed and saved."""
    digest = hashlib.sha256(json.dumps([kind, label, about], default=str).encode()).hexdigest()[:12]
    path = Path(folder, f"{kind}-{''.join(c if c.isalnum() else '_' for c in label)}-{digest}.json")
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    found = compute()
    write_whole(path, json.dumps(found))
    return found


def measured(run: Callable[[], T], device: Any, count: int) -> tuple[T, Row]:
    """The result of a function, its seconds per item, and the megabytes it used beyond those already in use.

    Seconds are processor time on a CPU. Memory is None if the system does not report the peak.
    """
    device = torch.device(device)
    is_cuda = device.type == "cuda"
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    if is_cuda:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    else:
        if _RESET_PEAK.exists():
            _trim()
            _RESET_PEAK.write_text("5")
        before = psutil.Process().memory_info().rss
    start = clock()
    found = run()
    if is_cuda:
        torch.cuda.synchronize(device)
    seconds = clock() - start
    peak = torch.cuda.max_memory_allocated(device) if is_cuda else _peak()
    return found, {"sec": seconds / count, "MB": None if peak is None else (peak - before) / 2**20}


def _trim() -> None:
    """Return freed memory to the system (glibc only); otherwise the next method reuses it and seems to need less."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def _peak() -> int | None:
    """Most resident bytes of this process since the last reset."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
