"""Languages of checkpoints that translate between many."""

from typing import Any

from hf_nmt_interp.errors import InputError


def set_languages(model: Any, tokenizer: Any, source: str | None, target: str | None) -> None:
    """Set the languages of a many-language checkpoint (mBART, M2M100, NLLB); others need no setting.

    The tokenizer will mark sources and targets with these codes (`en`, `en_XX` or `eng_Latn`, as it writes them; None
    leaves it as it is), and `generate()` will begin translations with the target language.
    """
    if not hasattr(tokenizer, "src_lang"):
        return
    ids = {}
    for name, code in (("source_lang", source), ("target_lang", target)):
        token = getattr(tokenizer, "lang_code_to_token", {}).get(code, code)
        ids[name] = None if code is None else tokenizer.convert_tokens_to_ids(token)
        if code is not None and ids[name] in (None, tokenizer.unk_token_id):
            raise InputError(name, code, f"is not a language of {type(tokenizer).__name__}")
    if source is not None:
        tokenizer.src_lang = source
    if target is not None:
        tokenizer.tgt_lang, model.generation_config.forced_bos_token_id = target, ids["target_lang"]
