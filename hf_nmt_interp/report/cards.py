"""Model cards from data: the exported model's folder and the files of its training run."""

import json
import re
import shlex
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData
from jinja2 import Environment, PackageLoader, StrictUndefined

from hf_nmt_interp.errors import check_choice
from hf_nmt_interp.models.kinds import KINDS

_KNOWN = (
    *("name", "base_model", "started_from", "datasets", "license", "license_name", "source_lang", "target_lang"),
    *("results", "data", "test_name", "note", "command", "arguments", "curve", "risk", "usage", "usage_language"),
    *("parameters", "size"),
)
_USAGE = """from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import hf_nmt_interp as hni  # registers its models with the Auto classes

name = {name}
model = AutoModelForSeq2SeqLM.from_pretrained(name{remote})
tokenizer = AutoTokenizer.from_pretrained(name)
inputs = tokenizer("{sentence}", return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs)[0], skip_special_tokens=True))
print(hni.attribute(model, tokenizer, "{sentence}", method="{method}"))"""
_SENTENCES = {"de": "Die Katze schläft auf dem Sofa.", "en": "The cat is sleeping on the sofa."}


def model_card(folder: str | Path, about: dict[str, Any] | None = None) -> str:
    """The card of a translator: metadata, description, where its translations come from, and how to use it.

    Args:
        folder: the exported model.
        about: optional data that is not in the folder: name, base_model (its Hub id), started_from (its other name),
            datasets (a list), license (as the Hub spells it), license_name, source_lang,
            target_lang, data, test_name, note, risk, command, arguments (a dictionary), results (of a run:
            train_steps, train_seconds, test_bleu, test_chrf), curve (from `curve_of`), usage and usage_language.
    """
    about = dict(about or {})
    for name, value in about.items():
        check_choice("about", name, _KNOWN)
        if isinstance(value, str) and name not in ("note", "command", "usage"):
            about[name] = " ".join(value.split())  # on one line
    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    about.setdefault("name", folder.name)
    results = about.get("results") or {}
    results = results | results.get("pruned", {})
    pair = "-".join(about[side] for side in ("source_lang", "target_lang") if about.get(side))
    loader = PackageLoader("hf_nmt_interp.report")
    environment = Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters["fence"] = _fence
    languages = (
        " from {source_lang} to {target_lang}".format(**{n: _cell(v) for n, v in about.items()}) if "-" in pair else ""
    )
    return environment.get_template("model_card.md").render(
        metadata=f"---\n{_metadata(about, config, results, pair)}\n---",
        name=_cell(about["name"]),
        summary=f"A translator{languages}, trained or explained with hf_nmt_interp.",
        facts=_facts(folder, config, about, results),
        note=about.get("note"),
        curve=about.get("curve"),
        command=_wrap(about["command"]) if about.get("command") else None,
        arguments=sorted((name, _code(value)) for name, value in (about.get("arguments") or {}).items()),
        usage=about.get("usage") or usage(about["name"], config, about.get("source_lang")),
        usage_language=about.get("usage_language", "python"),
    )


def usage(name: str, config: dict[str, Any], source_lang: str | None = None) -> str:
    """Python code that translates and explains a sentence."""
    remote = ", trust_remote_code=True" if config.get("auto_map") else ""
    method = "attention" if config["model_type"].startswith(("luong", "conv")) else "lrp"
    sentence = _SENTENCES.get(source_lang or "en", _SENTENCES["en"])
    return _USAGE.format(name=json.dumps(name, ensure_ascii=False), remote=remote, sentence=sentence, method=method)


def curve_of(model: Any, tokenizer: Any, pairs: list[tuple[str, str]], data: str, method: str = "lrp") -> dict | None:
    """Source contribution by target position over sentence pairs: method, sentences, data (what they are) and rows.

    None without pairs; no rows if the method does not support the model.
    """
    from hf_nmt_interp.analysis.contributions import mean_curve
    from hf_nmt_interp.attribution import METHODS
    from hf_nmt_interp.attribution.api import attribute
    from hf_nmt_interp.attribution.registry import default_settings

    if not pairs:
        return None
    if not METHODS[method].fits(model):
        return {"method": method, "rows": []}
    sides = [s for s, _ in pairs], [t for _, t in pairs]
    results = attribute(model, tokenizer, *sides, method, **default_settings(method))  # as `contributions` does
    curve = mean_curve(result.source_contribution for result in results)
    known = [row for row in curve.rows() if row["sentences"] > 1]
    rows = [row | {end: f"{row[end]:.3f}" for end in ("mean", "low", "high")} for row in known]
    return {"method": method, "sentences": len(pairs), "data": data, "rows": rows}


def _metadata(about: dict[str, Any], config: dict[str, Any], results: dict[str, Any], pair: str) -> str:
    """The card's metadata block, as huggingface_hub writes it."""
    datasets = about.get("datasets") or None
    task = {"task_type": "translation", "task_name": f"Translation {pair}".strip(), "dataset_args": pair or None}
    data: Any = {"dataset_type": (datasets or ["unknown"])[0], "dataset_name": about.get("test_name") or "test"}
    metrics = {"sacrebleu": results.get("test_bleu"), "chrf": results.get("test_chrf")}
    known = {name: round(value, 1) for name, value in metrics.items() if value is not None}
    scores = [EvalResult(metric_type=name, metric_value=value, **task | data) for name, value in known.items()]
    languages = [about[side] for side in ("source_lang", "target_lang") if about.get(side)]
    return ModelCardData(
        library_name="transformers",
        pipeline_tag="translation",
        license=about.get("license"),
        language=languages or None,
        base_model=about.get("base_model"),
        datasets=datasets,
        metrics=[score.metric_type for score in scores] or None,
        tags=["hf_nmt_interp", config["model_type"], "translation"],
        model_name=about["name"],
        eval_results=scores or None,
    ).to_yaml()


def _facts(folder: Path, config: dict[str, Any], about: dict[str, Any], results: dict[str, Any]) -> list[tuple]:
    """Rows of the card's table."""
    given = "parameters" in about and "size" in about
    parameters, size = (about["parameters"], about["size"]) if given else _weights(folder, config)
    kept = config.get("kept_heads") or {}
    counts = [f"{kind} {' '.join(str(len(heads)) for heads in kept[kind])}" for kind in KINDS if kind in kept]
    training = test = None
    if "train_steps" in results:
        training = f"{results['train_steps']:,} steps, {results.get('train_seconds', 0) / 3600:.1f} hours"
    if "test_bleu" in results:
        scores = f"BLEU {results['test_bleu']:.1f}, chrF {results['test_chrf']:.1f}"
        test = f"{about.get('test_name') or 'test'}: {scores} (sacreBLEU {version('sacrebleu')})"
    rows = (
        ("architecture", _architecture(config)),
        ("heads kept, by layer", "; ".join(counts)),
        ("fusion of calibrated attention", config.get("fusion")),
        ("alignment head", _alignment(config)),
        ("risk that was minimised", about.get("risk")),
        ("started from", about.get("started_from") or about.get("base_model")),
        ("parameters", f"{parameters:,}, {size / 1e6:.1f} MB in {config.get('dtype') or 'float32'}"),
        ("data", about.get("data")),
        ("licence", about.get("license_name")),
        ("training", training),
        ("test", test),
    )
    return [(label, _cell(value)) for label, value in rows if value]


def _alignment(config: dict[str, Any]) -> str | None:
    """The head that aligns words: an alignment head, or a head of the cross-attention."""
    if "alignment_heads" in config:
        return f"reads decoder layer {config['alignment_layer']}, {config['alignment_heads']} heads"
    own = config.get("alignment") or {}
    return f"head {own['head']} of cross-attention layer {own['layer']}" if own.get("head") is not None else None


def _cell(text: Any) -> str:
    r"""Text for a heading or a table cell, on one line and without raw HTML.

    >>> _cell("a | <b>\n# c")
    'a \\| &lt;b&gt; # c'
    """
    return escape(" ".join(str(text).split()), quote=False).replace("|", "\\|")


def _code(text: Any) -> str:
    """Text as code in a table cell."""
    return " ".join(str(text).split()).replace("`", "'").replace("|", "\\|")


def _fence(text: str) -> str:
    """The fence of a code block: more backticks than any run in the text."""
    return "`" * (1 + max([2, *(len(found) for found in re.findall("`+", text))]))


def _architecture(config: dict[str, Any]) -> str:
    parts = [(config.get("architectures") or [config["model_type"]])[0]]
    if "encoder_layers" in config and "decoder_layers" in config:
        parts.append(f"{config['encoder_layers']}+{config['decoder_layers']} layers")
    pruned = " before pruning" if config.get("kept_heads") else ""
    sizes = (
        ("width {}", config.get("d_model", config.get("hidden_size"))),
        (f"{{}} heads{pruned}", config.get("encoder_attention_heads")),
        ("{} inner units", config.get("encoder_ffn_dim")),
        ("{:,} pieces", config["vocab_size"]),
    )
    return ", ".join([*parts, *(text.format(size) for text, size in sizes if size is not None)])


def _weights(folder: Path, config: dict[str, Any]) -> tuple[int, int]:
    """Parameters, as `model.num_parameters()` counts them, and bytes of the weights."""
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    sizes = AutoConfig.for_model(**{name: value for name, value in config.items() if name != "dtype"})
    with torch.device("meta"):
        model = AutoModelForSeq2SeqLM.from_config(sizes, trust_remote_code=False)
    return model.num_parameters(), sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def rename_card(text: str, name: str) -> str:
    r"""A card of `model_card` with another name in its metadata, title and usage.

    >>> print(rename_card('---\nmodel_name: run\n---\n\n# run\n\nname = "run"', "me/nmt"))
    ---
    model_name: me/nmt
    ---
    <BLANKLINE>
    # me/nmt
    <BLANKLINE>
    name = "me/nmt"
    """
    if not (title := re.search(r"^---\n.*?\n---\n\n# ([^\n]+)$", text, re.DOTALL | re.MULTILINE)):
        return text
    old = re.escape(title[1])
    return re.sub(rf'^(model_name: |- name: |# |name = "){old}("?)$', rf"\g<1>{name}\2", text, flags=re.MULTILINE)


def _wrap(command: str) -> str:
    r"""A command with one option per line.

    >>> print(_wrap("python train.py --steps 5 --name 'a b'"))
    python train.py \
        --steps 5 \
        --name 'a b'
    """
    words = shlex.split(command)
    return " ".join("\\\n    " * (i > 0 and word.startswith("--")) + shlex.quote(word) for i, word in enumerate(words))
