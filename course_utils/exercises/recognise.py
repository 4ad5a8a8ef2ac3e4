"""Which known mistake an answer has made. A cause is named when what the answer *did* shows it, and not before.

Each call of a check gives evidence: the value, the error, the inputs changed, what was asked of a model or a function
among the inputs, the gradients. Where a known mistake differs from the right answer, that is one of its *signs*.

- A sign that the answer shows too supports the mistake, the more the less it could come about by accident: a tensor of
  wrong numbers says much, one wrong truth value little, and an exception nothing, since all code that breaks raises.
- A sign where the answer is right speaks against the mistake: the answer has not made it.
- A sign where the answer is wrong in another way says little: there may be a second fault on top. But a mistake that
  explains fewer wrong calls than it leaves unexplained is not the cause.

Named is the mistake with the most support, if nothing speaks against it, the support is `ENOUGH` or the answer did the
same as the mistake in everything, and the signs shared are at least `SHARE` of those that are not exceptions.

Where no known mistake is found, the checks that failed may still show *when* an answer is wrong: `pattern`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from course_utils.exercises.compare import is_tensor, same
from course_utils.exercises.exercise import Mistake
from course_utils.exercises.promises import LEADING
from course_utils.exercises.record import CheckResult, Outcome

ENOUGH = 8.0  # bits
SHARE = 0.5
_ERROR = object()


def most_alike(
    answer: list[CheckResult], reference: list[CheckResult], known: Iterable[tuple[Mistake, list[CheckResult]]]
) -> Mistake | None:
    """The known mistake that the results of `answer` show, if any. `reference` are the results of a right answer."""
    mine, right = dict(_evidence(answer)), dict(_evidence(reference))
    best, most = None, (0.0, 0)
    for mistake, results in known:
        support = _support(mine, right, dict(_evidence(results)))
        if support > most:
            best, most = mistake, support
    return best


Evidence = dict[tuple[Any, ...], Any]


def _evidence(results: list[CheckResult]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """What each call gave, by check, call and kind."""
    for result in results:
        for number, outcome in enumerate(result.outcomes):
            yield from _of_call((result.name, number), outcome)


def _of_call(call: tuple[Any, ...], outcome: Outcome) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Notes of one name are taken as a set where they can be: two answers may ask the same in another order."""
    yield (*call, "value"), (_ERROR, outcome.error) if outcome.error else outcome.value
    yield (*call, "changed"), outcome.changed
    if outcome.error:
        return  # what was asked before a crash says little
    notes: dict[str, list[Any]] = {}
    for name, value in outcome.notes:
        notes.setdefault(name, []).append(value)
    for name, values in notes.items():
        yield (*call, name), frozenset(values) if all(map(_is_plain, values)) else values


def _is_plain(value: Any) -> bool:
    """Equal where it looks equal: a tensor in a tuple would count as another one each time."""
    return type(value) in (str, int, bool) or (type(value) is tuple and all(map(_is_plain, value)))


def _support(mine: Evidence, right: Evidence, wrong: Evidence) -> tuple[float, int]:
    """(how many bits support the mistake, in how much the answer agrees with it); (0, 0): not named."""
    bits, shown, signs, unexplained = 0.0, 0, 0, 0
    for key, sign in wrong.items():
        if key not in mine:
            continue
        if key in right and _alike(sign, right[key]):
            unexplained += not _alike(mine[key], right[key])
            continue
        if key in right and _alike(mine[key], right[key]):
            return 0.0, 0
        if _is_error(sign):
            continue
        signs += 1
        if _alike(mine[key], sign):
            shown += 1
            bits += _bits(sign, right.get(key))
    agreed = sum(key in mine and _alike(mine[key], value) for key, value in wrong.items())
    enough = bits >= ENOUGH or (shown and agreed == len(wrong) == len(mine))
    return (bits, agreed) if enough and shown >= max(SHARE * signs, unexplained) else (0.0, 0)


def _is_error(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and value[0] is _ERROR


def _alike(one: Any, other: Any) -> bool:
    if _is_error(one) or _is_error(other):
        return _is_error(one) and _is_error(other) and one[1] == other[1]
    if {type(one), type(other)} == {int, float}:
        return False  # one may stand for the other, but they are not the same
    try:
        return same(one, other)
    except Exception:  # a value that cannot be compared is like no other
        return False


def _bits(value: Any, right: Any) -> float:
    """How hard it is to meet this wrong value by accident, where `right` is the right one."""
    if _is_error(right):
        return ENOUGH  # a value where an error is promised
    if is_tensor(value):
        differ = value.isfinite()  # NaN says little: whatever it was, it has spread
        if is_tensor(right) and value.shape == right.shape and value.dtype == right.dtype:
            differ = differ & ~torch.isclose(value.double(), right.double())
        return int(differ.sum()) * (8.0 if value.is_floating_point() else 1.0)
    if isinstance(value, bool | type(None)):
        return 1.0
    if isinstance(value, str):
        return ENOUGH
    if isinstance(value, float):
        return 8.0
    if isinstance(value, int):
        return min(8.0, abs(value).bit_length())
    if isinstance(value, list | tuple):
        others = right if isinstance(right, list | tuple) and len(right) == len(value) else [None] * len(value)
        return 1.0 + sum(_bits(v, r) for v, r in zip(value, others, strict=True) if not _alike(v, r))
    if isinstance(value, dict):
        return sum(_bits(v, right.get(k) if isinstance(right, dict) else None) for k, v in value.items())
    return 1.0 if not isinstance(value, frozenset | set) else 4.0


# ---- when an answer is wrong ---------------------------------------------------------------------------------

ONE_LEADING_DIMENSION = Mistake(
    "not right for every number of leading dimensions",
    "With a batch it is right, but there may be no leading dimension, or several. Count dimensions from the end (the "
    "last one is -1), and use operations that take any number of them, such as `@`.",
)
SIZE_ONE = Mistake(
    "right until a size is 1",
    "Try it with a batch of one, or a single token. Often it is `squeeze()`: without a number it takes away *every* "
    "dimension of size 1. Name the dimension that you mean.",
)
DEVICE = Mistake(
    "new tensors forget the device",
    "All values are right, but a tensor that you make is always on the CPU. Make it with `device=x.device`, where x is "
    "one of the inputs.",
)
CUT_OFF = Mistake(
    "the gradient is cut off",
    "The values are right, but an input cannot learn from a result: `detach`, `.data`, `.item()`, numpy, "
    "`torch.tensor(…)` and `torch.no_grad` cut a result off from the inputs.",
)
IN_PLACE = Mistake(
    "an input is changed in place",
    "The caller still needs it. Work on a copy, and avoid operations that write in place: `+=`, `x[…] = …`, and names "
    "that end in `_`.",
)
DTYPE = Mistake(
    "another dtype than that of the inputs",
    "The values are right in float32. In another dtype the result must have the dtype of the inputs: look for a "
    "`.float()`, or a new tensor, that is always float32.",
)


def pattern(results: list[CheckResult]) -> Mistake | None:
    """What is true of an answer because of the checks that it fails, and of those that it passes; None: no such thing.

    The checks of all kinds but "leading" use one leading dimension.
    """
    if any(outcome.changed for r in results for outcome in r.outcomes):
        return IN_PLACE
    promised = {r.kind for r in results if r.kind}
    wrong = {r.kind for r in results if r.problem and r.kind}
    other = [r for r in results if r.problem and not r.kind]
    if "dtypes" in wrong <= {"dtypes", "gradients"} and all(
        "expected dtype" in r.problem for r in results if r.problem
    ):
        return DTYPE
    calls = next((r.outcomes for r in results if r.kind == "leading"), [])
    leads = [lead for lead, outcome in zip(LEADING, calls, strict=False) if outcome.failed]
    if promised > {"leading", "ones", "equal"} and wrong == {"leading"} and all(len(lead) != 1 for lead in leads):
        return ONE_LEADING_DIMENSION
    if promised > {"leading", "ones"} >= wrong and wrong and all(1 in lead for lead in leads):
        return SIZE_ONE
    if other or len(wrong) != 1:
        return None
    problem = next(r.problem for r in results if r.problem) or ""
    if wrong == {"device"} and ("on the same device" in problem or "left behind on the CPU" in problem):
        return DEVICE
    if wrong == {"gradients"} and "no gradient reaches" in problem:
        return CUT_OFF
    return None
