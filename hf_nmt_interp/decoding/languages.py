"""Languages of multilingual checkpoints."""

import inspect
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from hf_nmt_interp.errors import InputError

_SHOWN = 12  # codes in an error
_TO_LANGUAGE = re.compile(r"<2[a-z]{2,3}(?:_\w+)?>")


def language_tokens(tokenizer: Any) -> dict[str, str]:
    """Language codes of a tokenizer and their tokens; empty if it has none."""
    if not hasattr(tokenizer, "set_src_lang_special_tokens"):  # FSMT's tokenizer only names its language pair
        return {}
    if codes := getattr(tokenizer, "lang_code_to_token", None):  # M2M100: `__de__` for `de`
        return dict(codes)
    own = {tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token, tokenizer.pad_token, tokenizer.mask_token}
    tokens = getattr(tokenizer, "lang_code_to_id", None) or set(tokenizer.all_special_tokens) - own
    return {token.strip("_"): token for token in sorted(map(str, tokens)) if "<" not in token}


def set_languages(model: Any, tokenizer: Any, source: str | None, target: str | None) -> None:
    """Set the languages of a multilingual checkpoint (mBART, M2M100, NLLB, SeamlessM4T); others need no setting.

    The tokenizer will mark sources and targets with these codes (`en`, `en_XX` or `eng_Latn`, as it writes them; None
    changes nothing), and `generate()` will begin translations with the target language.
    """
    if not (tokens := language_tokens(tokenizer)):
        return
    for name, code in (("source_lang", source), ("target_lang", target)):
        if code is not None and code not in tokens and code not in tokens.values():
            problem = f"is not a language of {type(tokenizer).__name__}"
            raise InputError(name, code, problem, _suggestion(code, list(tokens)))
    if source is not None:
        tokenizer.src_lang = source if source in tokens else source.strip("_")
    if target is not None:
        tokenizer.tgt_lang = target if target in tokens else target.strip("_")
        token = tokens.get(target, target)
        model.generation_config.forced_bos_token_id = tokenizer.convert_tokens_to_ids(token)


def choose_languages(model: Any, tokenizer: Any, source: str | None, target: str | None) -> None:
    """`set_languages` for a newly loaded checkpoint: multilingual ones need a target language, others accept none."""
    if not language_tokens(tokenizer):
        if source or target:
            codes = getattr(tokenizer, "supported_language_codes", None)  # Marian's codes are part of the sentence
            remedy = f"write the code into the source, e.g. source_prefix='{codes[0]} '" if codes else "leave it out"
            problem = f"{type(tokenizer).__name__} has no languages to choose"
            raise InputError("source_lang" if source else "target_lang", None, problem, remedy)
        return
    parameter = inspect.signature(type(tokenizer)).parameters.get("tgt_lang")
    default = parameter.default if parameter else None  # SeamlessM4T's is always set
    if target is None and tokenizer.tgt_lang and tokenizer.tgt_lang.strip("_") != default:
        target = tokenizer.tgt_lang
    set_languages(model, tokenizer, source, target)
    check_target(model, tokenizer)


def check_target(model: Any, tokenizer: Any, generate: Mapping[str, Any] | None = None) -> None:
    """Raise if a multilingual checkpoint has no target language."""
    if not (tokens := language_tokens(tokenizer)):
        return
    if {"tgt_lang", "decoder_input_ids"} & set(generate or {}):
        return
    ids = set(tokenizer.convert_tokens_to_ids(list(tokens.values())))
    names = "forced_bos_token_id", "decoder_start_token_id"
    settings = model.generation_config, model.config, (generate or {}).get("generation_config")
    given = [(generate or {}).get(name) for name in names]
    given += [getattr(place, name, None) for place in settings for name in names]
    if not ids & {x for value in given for x in (value if isinstance(value, list) else [value])}:
        problem = f"{type(model).__name__} translates into {len(tokens)} languages, but none was given"
        raise InputError("target_lang", None, problem, f"give one of {_some(list(tokens))}")


def known_prefixes(model: Any, tokenizer: Any) -> list[str]:
    """Source prefixes that a checkpoint expects: T5's config has one per task, MADLAD's tokenizer has `<2de>` etc."""
    tasks = getattr(model.config, "task_specific_params", None) or {}
    named = [task.get("prefix") for name, task in tasks.items() if name.startswith("translation")]
    codes = [token for token in tokenizer.get_vocab() if _TO_LANGUAGE.fullmatch(token)]
    common = sorted(codes, key=lambda token: (token not in ("<2de>", "<2fr>", "<2en>"), token))
    return [prefix for prefix in named if prefix] or [f"{token} " for token in common if len(codes) > 1]


def _suggestion(code: str, known: list[str]) -> str:
    """Suggestions for a wrong code: codes with the same first letters or a similar spelling.

    >>> _suggestion("de", ["deu_Latn", "eng_Latn", "fra_Latn"])
    'did you mean deu_Latn?'
    """
    language = code.strip("_").lower().replace("-", "_").split("_")[0]
    near = [name for name in known if name.split("_")[0] == language]
    near = near or [name for name in known if name.startswith(language[:2])] or get_close_matches(code, known)
    return f"did you mean {' or '.join(near[:3])}?" if near else f"it has {_some(known)}"


def _some(codes: list[str]) -> str:
    """The first codes of a list.

    >>> _some(["de", "en"])
    'de, en'
    """
    return ", ".join(codes[:_SHOWN]) + (f" and {len(codes) - _SHOWN} others" if len(codes) > _SHOWN else "")
