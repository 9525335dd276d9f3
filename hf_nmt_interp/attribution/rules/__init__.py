"""LRP rules: how a unit's relevance is divided among the messages it received. One file and one line here each.

Definitions: docs/methods.md, LRP.
"""

from dataclasses import MISSING, fields
from inspect import Parameter
from typing import Any, get_type_hints

from hf_nmt_interp.attribution.parsing import check_settings
from hf_nmt_interp.attribution.rules.alpha_beta import AlphaBeta
from hf_nmt_interp.attribution.rules.attnlrp import AttnLRP
from hf_nmt_interp.attribution.rules.base import Rule
from hf_nmt_interp.attribution.rules.cp_lrp import CPLRP
from hf_nmt_interp.attribution.rules.epsilon import Epsilon
from hf_nmt_interp.attribution.rules.gamma import Gamma
from hf_nmt_interp.attribution.rules.ratio import Ratio
from hf_nmt_interp.errors import check_choice

RULES: dict[str, Any] = {
    "alpha_beta": AlphaBeta,
    "epsilon": Epsilon,
    "ratio": Ratio,
    "attnlrp": AttnLRP,
    "cp_lrp": CPLRP,
    "gamma": Gamma,
}


def rule_settings(*names: str) -> dict[str, Parameter]:
    """Settings of the rules with these names (default: all rules), as parameters."""
    found = {}
    for kind in (RULES[name] for name in names or RULES):
        types = get_type_hints(kind)
        for field in fields(kind):
            default = Parameter.empty if field.default is MISSING else field.default
            options: dict[str, Any] = {"default": default, "annotation": types[field.name]}
            found[field.name] = Parameter(field.name, Parameter.KEYWORD_ONLY, **options)
    return found


def make_rule(name: str, **settings: Any) -> Rule:
    """The rule with this name and its settings.

    >>> make_rule("alpha_beta", alpha=0.5, beta=0.5)
    AlphaBeta(alpha=0.5, beta=0.5, stabilizer=1e-05)
    """
    check_choice("rule", name, RULES)
    check_settings(f"rule {name!r}", settings, rule_settings(name))
    return RULES[name](**settings)
