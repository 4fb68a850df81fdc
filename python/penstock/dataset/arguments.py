"""Checks of what users pass to the stages of a dataset."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.error import Error


def labels_array(given: Any) -> NDArray[np.int64]:
    if given is None:
        return np.empty(0, np.int64)
    array = np.asarray(given)
    if array.ndim != 1 or (array.size > 0 and array.dtype.kind not in "iub"):
        raise Error(f"labels are {array.dtype} of shape {array.shape}; expected a list of integers")
    return np.ascontiguousarray(array, np.int64)


def floats(values: Any, what: str, counts: tuple[int, ...]) -> tuple[float, ...]:
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) not in counts:
        raise Error(f"{what} is {values!r}; expected {' or '.join(map(str, counts))} number(s)")
    return numbers


def count(value: Any, what: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise Error(f"{what} is {value!r}; expected an integer") from None
    if number < 0:
        raise Error(f"{what} is {number}; expected 0 or more")
    return number


def positive(value: Any, what: str) -> int:
    number = count(value, what)
    if number == 0:
        raise Error(f"{what} is 0; expected 1 or more")
    return number


def integer_weights(weights: Sequence[float]) -> list[int]:
    values = [float(weight) for weight in weights]
    if not values or not all(math.isfinite(value) and value > 0 for value in values):
        raise Error(f"the weights are {list(weights)}; expected numbers above 0")
    if all(value.is_integer() and value < 1 << 20 for value in values):
        whole = [int(value) for value in values]
    else:
        whole = [max(1, round(value / sum(values) * 1_000_000)) for value in values]
    divisor = math.gcd(*whole)
    return [weight // divisor for weight in whole]


def check_function(function: Any, stage: str) -> None:
    if not callable(function):
        raise Error(f"{stage} got a {type(function).__name__}; expected a function")


def threads(value: int | None, what: str = "num_parallel_calls") -> int:
    if value is None:
        return 0
    number = count(value, what)
    if not 1 <= number <= 1024:
        raise Error(f"{what} is {number}; expected 1 to 1024, or None for the default")
    return number


def dtype_name(dtype: Any) -> str:
    try:
        name: str = np.dtype(dtype).name
    except TypeError as error:
        raise Error(f"{dtype!r} is not the name of an element type", cause=str(error)) from None
    return name
