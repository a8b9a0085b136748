"""What was measured of live traffic as JSON, and back: what recordings hold of it.

A dataclass is the list of its fields, a dict the list of its pairs, a histogram the
list of its buckets that hold something.
"""

from __future__ import annotations

import types
from collections import Counter
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from latprof_analysis.stats.kernel_histogram import CoarseHistogram

T = TypeVar("T")


def as_json(value: Any) -> Any:
    """Return what `of_json` makes the same of."""
    if isinstance(value, CoarseHistogram):
        used = np.flatnonzero(value.counts)
        counts = value.counts[used]
        rest = value.sum_ns, value.unmeasured, value.variance
        return [used.tolist(), counts.tolist(), *rest]
    if is_dataclass(value):
        return [as_json(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, dict):
        return [[as_json(key), as_json(of)] for key, of in value.items()]
    if isinstance(value, (list, tuple)):
        return [as_json(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def of_json(wanted: type[T], found: Any) -> T:
    """Make a value of a type again; raises ValueError or TypeError where it is none."""
    made: T = _made(wanted, found)
    return made


def _made(wanted: Any, found: Any) -> Any:
    kind: Any = get_origin(wanted) or wanted
    of = get_args(wanted)
    if kind is types.UnionType:  # of something and None
        return None if found is None else _made(of[0], found)
    if kind is CoarseHistogram:
        buckets, counts, *rest = found
        made = CoarseHistogram()
        made.counts[buckets] = counts
        made.sum_ns, made.unmeasured, made.variance = rest
        return made
    if is_dataclass(kind):
        return _made_of_fields(kind, found)
    if kind in (list, tuple, dict, Counter):
        return _made_of_many(kind, of, found)
    return kind(found) if isinstance(kind, type) and issubclass(kind, Enum) else found


def _made_of_fields(kind: Any, found: Any) -> Any:
    types_of = _field_types(kind)
    return kind(*map(_made, types_of, _of_length(found, len(types_of))))


def _made_of_many(kind: Any, of: tuple[Any, ...], found: Any) -> Any:
    if kind in (dict, Counter):
        key, value = of if kind is dict else (*of, int)
        return kind({_made(key, k): _made(value, v) for k, v in found})
    is_record = kind is tuple and of[-1] is not Ellipsis
    whole = of if is_record else of[:1] * len(found)
    return kind(map(_made, whole, _of_length(found, len(whole))))


def _of_length(found: Any, length: int) -> Any:
    if len(found) != length:
        raise ValueError(f"{length} fields were expected, not {len(found)}")
    return found


@cache
def _field_types(kind: Any) -> list[Any]:
    hints = get_type_hints(kind)
    return [hints[field.name] for field in fields(kind)]
