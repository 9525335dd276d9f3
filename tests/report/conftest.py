"""Small explanations written by hand."""

import pytest

from hf_nmt_interp.attribution.result import AttributionResult
from tests.made_up_results import make_result


@pytest.fixture
def result() -> AttributionResult:
    """A cat that sleeps."""
    return make_result(["▁A", "▁cat", "▁sleep", "s", "</s>"], ["▁Eine", "▁Katze", "▁schlä", "ft", "</s>"])
