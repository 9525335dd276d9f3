"""Settings of attribution methods, by their signatures: as values, and as text."""

import inspect
import json
import re
from numbers import Integral, Real
from typing import Any, get_args, get_origin

from hf_nmt_interp.errors import InputError

Method = tuple[str, dict[str, Any]]  # name, settings


def method_settings(method: str, argument: str = "method") -> dict[str, inspect.Parameter]:
    """Settings of the method of that name, from its signature; `argument` is where it was given, for messages."""
    from hf_nmt_interp.attribution import METHODS

    if method not in METHODS:
        raise InputError(f"{argument}: {method!r} is not one of {', '.join(METHODS)}")
    known = dict(inspect.signature(METHODS[method]).parameters)
    known.pop("model")
    return known


def check_type(name: str, value: Any, annotation: Any) -> None:
    """Refuse a value that is none of the types a setting is annotated with; numbers may be NumPy's."""
    kinds = get_args(annotation) or (annotation,)
    numbers: dict[Any, Any] = {int: Integral, float: Real}
    fits = isinstance(value, tuple(numbers.get(kind, kind) for kind in kinds))
    if not fits or (isinstance(value, bool) and bool not in kinds):
        expected = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        raise InputError(f"{name}: {value!r} is not of type {expected}")


def parse_method(text: str, argument: str = "--method") -> Method:
    """Name and settings of `NAME` or `NAME:SETTING=VALUE,...`.

    >>> parse_method("attention:layer=2,head=null")
    ('attention', {'layer': 2, 'head': None})
    """
    name, _, settings = text.partition(":")
    method_settings(name, argument)
    return name, parse_settings(name, settings.split(",") if settings else [], argument)


def parse_methods(text: str, argument: str = "--method") -> list[Method]:
    """`parse_method` of each part of `NAME+NAME:SETTING=VALUE+...`.

    >>> parse_methods("attention+smoothgrad:sigma=1e+0")
    [('attention', {}), ('smoothgrad', {'sigma': 1.0})]
    """
    return [parse_method(part, argument) for part in re.split(r"\+(?!\d)", text)]


def parse_settings(method: str, given: list[str], argument: str = "--set") -> dict[str, Any]:
    """Settings from `name=value`, values as in JSON, checked against the method's signature.

    Args:
        method: whose settings they are.
        given: the texts.
        argument: where they were given, for messages.

    >>> parse_settings("attention", ["layer=2", "head=null"])
    {'layer': 2, 'head': None}
    """
    known = method_settings(method, "--method")
    settings = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{argument}: {text!r} is not name=value, e.g. {next(iter(known))}=...")
        if name not in known:
            raise InputError(f"{argument}: method {method!r} has no setting {name!r}; it has {', '.join(known)}")
        settings[name] = _value(f"{argument}: {name}", value, known[name].annotation)
    return settings


def _value(name: str, text: str, annotation: Any) -> Any:
    """A setting's value: JSON of a type that the annotation allows, else a string where it allows one."""
    allowed = get_args(annotation) or (annotation,)
    kinds = [str if isinstance(kind, str) else get_origin(kind) or kind for kind in allowed]  # Literals are strings
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or a number or a nesting that Python does not read
        value = text
    if type(value) is int and float in kinds and int not in kinds:
        value = float(value)
    if type(value) in kinds:
        return value
    if str in kinds:
        return text
    expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
    raise InputError(f"{name}={text[:80]} is not of type {expected}")
