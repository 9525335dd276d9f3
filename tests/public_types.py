"""What type checkers and editors know about the public names; `mypy` checks this file, see pyproject.toml."""

from typing import Any, assert_type

import hf_nmt_interp as hni


def check_types(model: Any, tokenizer: Any) -> None:
    """Types of what public functions return."""
    assert_type(hni.attribute(model, tokenizer, "A dog."), hni.AttributionResult)
    assert_type(hni.attribute(model, tokenizer, "A dog.", targets="Ein Hund.").text, str)
    assert_type(hni.attribute(model, tokenizer, "A dog.", target=None, method="lrp"), hni.AttributionResult)
    results = hni.attribute(model, tokenizer, ["A dog."], ["Ein Hund."], method="saliency", smoothgrad=30)
    assert_type(results, hni.AttributionResults)
    assert_type(results[0], hni.AttributionResult)
    assert_type(results[:1], hni.AttributionResults)
    assert_type(results.text, list[str])
    assert_type(hni.align(model, tokenizer, "A dog."), set[tuple[int, int]])
    assert_type(hni.align(model, tokenizer, ["A dog."], ["Ein Hund."]), list[set[tuple[int, int]]])
    assert_type(hni.transfer_markup("A <b>dog</b>.", model, tokenizer), str)
    assert_type(hni.transfer_markup(["A <b>dog</b>."], model, tokenizer), list[str])
    assert_type(hni.head_report(model, tokenizer, ["A dog."]), hni.HeadReport)
    with hni.explain_generation(model, tokenizer) as explained:
        assert_type(explained.results, hni.AttributionResults)
    hni.attribute(model, tokenizer)  # type: ignore[call-overload]
    hni.atribute  # type: ignore[attr-defined]  # noqa: B018
