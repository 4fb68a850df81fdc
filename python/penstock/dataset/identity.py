"""What identifies a function of a dataset from run to run, so that a cache of its results is used only as long as it holds."""

from __future__ import annotations

import functools
import hashlib
import inspect
import pickle
import types
from typing import Any

from penstock.error import Error


def identity(function: Any) -> str:
    """A digest of a function's code, defaults and closure. It does not look into the functions that it calls."""
    total = hashlib.sha256()
    for part in _parts(function, _name(function), set()):
        total.update(len(part).to_bytes(8, "little") + part)
    return f"{_name(function)} {total.hexdigest()[:32]}"


def _name(function: Any) -> str:
    owner = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(owner, '__module__', '')}.{owner.__qualname__}"


def _parts(value: Any, whose: str, seen: set[int]) -> list[bytes]:
    if id(value) in seen:  # a function that refers to itself
        return [b"again"]
    if isinstance(value, functools.partial):
        return [
            b"partial",
            *_parts(value.func, whose, seen),
            *_value(value.args, whose),
            *_value(sorted(value.keywords.items()), whose),
        ]
    if isinstance(value, types.MethodType):
        return [b"method", *_parts(value.__func__, whose, seen), *_value(value.__self__, whose)]
    if isinstance(value, types.FunctionType):
        seen.add(id(value))
        parts = [_name(value).encode(), *_code(value.__code__)]
        parts += _value((value.__defaults__, sorted((value.__kwdefaults__ or {}).items())), whose)
        for name, inner in sorted(inspect.getclosurevars(value).nonlocals.items()):
            parts.append(name.encode())
            parts += _parts(inner, whose, seen) if callable(inner) else _value(inner, whose)
        return parts
    if isinstance(value, (type, types.BuiltinFunctionType)):
        return [_name(value).encode()]
    call = type(value).__call__
    own = _parts(call, whose, seen) if isinstance(call, types.FunctionType) else [_name(value).encode()]
    return [*own, *_value(value, whose)]


def _code(code: types.CodeType) -> list[bytes]:
    parts = [code.co_code, repr(code.co_names).encode()]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            parts += _code(constant)
        elif isinstance(constant, frozenset):
            parts.append(repr(sorted(constant, key=repr)).encode())
        else:
            parts.append(repr(constant).encode())
    return parts


def _value(value: Any, whose: str) -> list[bytes]:
    try:
        return [pickle.dumps(value, 4)]
    except Exception as error:
        raise Error(
            f"cache() cannot tell whether {whose} stays the same from run to run: it holds a {type(value).__name__}; name "
            "what the stages do by version=",
            cause=str(error),
        ) from None
