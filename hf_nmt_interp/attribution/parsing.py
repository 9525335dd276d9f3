"""Checks and parses settings of methods and rules by their parameters."""

import json
from collections.abc import Callable, Collection, Sequence
from inspect import Parameter
from numbers import Integral, Real
from typing import Any, get_args, get_origin

from hf_nmt_interp.errors import InputError, check_choice

Parameters = dict[str, Parameter]
Named = tuple[str, dict[str, Any]]  # name, settings


def check_settings(what: str, settings: dict[str, Any], known: Parameters) -> None:
    """Raise for settings that `what`, e.g. "method 'lrp'", does not have, and for wrong types; NumPy's are allowed."""
    numbers: dict[Any, Any] = {int: Integral, float: Real}
    for name, value in settings.items():
        if name not in known:
            raise InputError(name, None, f"{what} has no such setting", f"it has {', '.join(known)}")
        kinds = get_args(known[name].annotation) or (known[name].annotation,)
        fits = isinstance(value, tuple(numbers.get(kind, kind) for kind in kinds))
        if not fits or (isinstance(value, bool) and bool not in kinds):
            expected = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
            raise InputError(name, None, f"{value!r} is not of type {expected}")


def parse_named(text: str, argument: str, names: Collection[str], settings_of: Callable[[str], Parameters]) -> Named:
    """Name and settings of `NAME` or `NAME:SETTING=VALUE,...`.

    Args:
        text: text from the user.
        argument: name of the argument, for errors.
        names: the known names.
        settings_of: returns the parameters for a name.
    """
    if not isinstance(text, str):
        raise InputError(argument, None, f"{text!r} is not one of {', '.join(names)}")
    name, _, settings = text.partition(":")
    check_choice(argument, name, names)
    given = settings.split(",") if settings else []
    return name, parse_settings(f"{argument.removeprefix('--')} {name!r}", given, settings_of(name), argument)


def parse_settings(what: str, given: Sequence[str], known: Parameters, argument: str) -> dict[str, Any]:
    """Settings from texts `name=value`, values as in JSON; other arguments as in `check_settings`, `parse_named`."""
    settings = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(argument, text, f"is not name=value, e.g. {next(iter(known), 'name')}=...")
        if name not in known:
            raise InputError(argument, None, f"{what} has no setting {name!r}", f"it has {', '.join(known)}")
        settings[name] = _value(argument, name, value, known[name].annotation)
    return settings


def _value(argument: str, name: str, text: str, annotation: Any) -> Any:
    """A setting's value: JSON of a type that the annotation allows, otherwise a string if it allows one."""
    allowed = get_args(annotation) or (annotation,)
    kinds = [str if isinstance(kind, str) else get_origin(kind) or kind for kind in allowed]  # Literals are strings
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # not JSON, or a number or nesting that Python cannot parse
        value = text
    if type(value) is int and float in kinds and int not in kinds:
        value = float(value)
    if type(value) in kinds:
        return value
    if str in kinds:
        return text
    expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
    raise InputError(argument, None, f"{name}={text[:80]} is not of type {expected}")
