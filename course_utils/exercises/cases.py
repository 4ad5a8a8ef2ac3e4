"""What most checks are: calls of the answer, and what each must give. What a learner reads of a call is made here.

case(normal(2, 5, 12), 3)                   # the answer must give what the reference gives
case(3, 3).gives(torch.ones(3, 3).tril())   # … or this
"""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.exercises.compare import FEW, Mismatch, describe, dtype_name, expect, is_float, is_tensor, numbers
from course_utils.exercises.pretend_device import PretendDevice
from course_utils.exercises.record import note, unrecorded

_FROM_THE_REFERENCE = object()


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers, the same in every dtype. Two inputs of one case take two seeds."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


@dataclass(frozen=True)
class Case:
    """One call of the answer. `remark` says what its shapes do not show."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    wanted: Any = _FROM_THE_REFERENCE
    remark: str = ""
    _kept: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def gives(self, wanted: Any) -> "Case":
        return replace(self, wanted=wanted, _kept={})

    def noted(self, remark: str) -> "Case":
        return replace(self, remark=remark, _kept={})

    def to(self, dtype: torch.dtype) -> "Case":
        """The same call with every tensor of floats, and every module, in this dtype."""
        args = tuple(_converted(x, dtype) for x in self.args)
        return replace(self, args=args, kwargs={k: _converted(x, dtype) for k, x in self.kwargs.items()}, _kept={})

    def expected(self, reference: Callable[..., Any]) -> tuple[Any, Any]:
        """What the call must give, and the same computed in float64 (None: only the first is known)."""
        if self.wanted is not _FROM_THE_REFERENCE:
            return self.wanted, None
        if "expected" not in self._kept:
            low = any(is_float(x) and x.dtype != torch.float64 for x in (*self.args, *self.kwargs.values()))
            # A function among the inputs may hold numbers of its own, which nobody can convert.
            known = low and not any(callable(x) and not isinstance(x, nn.Module) for x in self.args)
            with unrecorded():
                exact = self.to(torch.float64)._call(reference) if known else None
                self._kept["expected"] = self._call(reference), exact
        return self._kept["expected"]

    def test(self, answer: Callable[..., Any], reference: Callable[..., Any], returns: tuple[str, ...] = ()) -> None:
        """Raises `Mismatch` unless the answer gives what it must."""
        wanted, exact = self.expected(reference)
        expect_results(self._call(answer), wanted, self.words(reference), returns, exact)

    def test_gradients(
        self, answer: Callable[..., Any], reference: Callable[..., Any], returns: tuple[str, ...] = ()
    ) -> None:
        """Raises `Mismatch` unless every result of floats gives every input of floats the reference's gradient."""
        where = self.words(reference)
        names = list(inspect.signature(reference).parameters)
        if "gradients" not in self._kept:
            with unrecorded():
                self._kept["gradients"] = self._gradients(reference)
        wanted, wanted_gradients = self._kept["gradients"]
        got, got_gradients = self._gradients(answer)
        expect_results(got, wanted, where, returns)
        for (i, j), gradient in wanted_gradients.items():
            result = f"the {returns[i]}" if returns else "the result"
            nothing = torch.zeros_like(self.args[j])
            if got_gradients[i, j] is _CUT and gradient is not _CUT and gradient.count_nonzero():
                raise Mismatch(None, None, f"{where}\nno gradient reaches {names[j]} from {result}: {_CUT_WORDS}")
            found, true = (nothing if g is _CUT else g for g in (got_gradients[i, j], gradient))
            expect(found, true, f"{where}: the gradient that {result} gives to {names[j]}")

    def test_device(
        self, answer: Callable[..., Any], reference: Callable[..., Any], returns: tuple[str, ...] = ()
    ) -> None:
        """Raises `Mismatch` unless the answer works, and stays, where its inputs are, were that a GPU."""
        with PretendDevice() as device:
            got = self._call(answer)
            strangers = device.strangers(got)
        if strangers:
            raise Mismatch(None, None, f"{self.words(reference)}\n{_ELSEWHERE}")
        wanted, exact = self.expected(reference)
        expect_results(got, wanted, self.words(reference), returns, exact)

    def test_error(
        self, answer: Callable[..., Any], reference: Callable[..., Any], returns: tuple[str, ...] = ()
    ) -> None:
        """Raises `Mismatch` unless the answer raises the error that the case wants."""
        try:
            got = self._call(answer)
        except self.wanted:
            return
        words = f"{self.words(reference)}\nexpected {self.wanted.__name__}\ngot      {describe(got)}"
        raise Mismatch(None, None, words)

    def words(self, reference: Callable[..., Any]) -> str:
        """The call as a learner reads it: "scores (3, 5, 7), mask (5, 7)"; few numbers are shown whole."""
        given = {**dict(zip(inspect.signature(reference).parameters, self.args, strict=False)), **self.kwargs}
        text = ", ".join(f"{name}{_in_words(value)}" for name, value in given.items())
        return f"{text}: {self.remark}" if self.remark else text

    def _call(self, function: Callable[..., Any]) -> Any:
        """With inputs of its own: no call can change those of another."""
        args, kwargs = copy.deepcopy((self.args, self.kwargs))
        return function(*args, **kwargs)

    def _gradients(self, function: Callable[..., Any]) -> tuple[Any, dict[tuple[int, int], Any]]:
        """The results, and the gradient of each result (times fixed random factors) for each input of floats."""
        args, kwargs = copy.deepcopy((self.args, self.kwargs))
        leaves = {j: x.requires_grad_() for j, x in enumerate(args) if is_float(x)}
        results = function(*args, **kwargs)
        found: dict[tuple[int, int], Any] = {}
        for i, result in enumerate(results if isinstance(results, tuple) else (results,)):
            if not is_float(result):
                continue
            total = (result * normal(*result.shape, seed=99 + i, dtype=result.dtype)).sum()
            each = [None] * len(leaves)
            if total.requires_grad:
                try:
                    each = torch.autograd.grad(total, list(leaves.values()), allow_unused=True, retain_graph=True)
                except RuntimeError as error:
                    raise Mismatch(None, None, f"{_NO_BACKWARD}\n{str(error).partition('.')[0]}") from error
            found |= {(i, j): _CUT if g is None else g for j, g in zip(leaves, each, strict=True)}
        note("gradients", found)
        return _detached(results), found


_CUT = "no gradient"
_CUT_WORDS = "`detach`, `.item()`, `.data`, numpy, `torch.tensor(…)` and `no_grad` cut a result off from the inputs"
_NO_BACKWARD = (
    "the gradient cannot be computed. Was a value that it needs overwritten (`/=`, `x[…] = …`, names that end in `_`)?"
)
_ELSEWHERE = (
    "your result is not where the inputs are: on a GPU it would be left behind on the CPU.\n"
    "Make new tensors with `device=` that of an input"
)


def case(*args: Any, **kwargs: Any) -> Case:
    """The call `answer(*args, **kwargs)`."""
    return Case(args, kwargs)


def expect_results(got: Any, wanted: Any, where: str, returns: tuple[str, ...], exact: Any = None) -> None:
    """`expect`, which names the result that is wrong. Of several, the last comes first: the others depend on it."""
    if not returns:
        return expect(got, wanted, where, exact)
    together = ", ".join(returns)
    if not issubclass(type(got), tuple):
        expect(got, wanted, f"{where}: the kind of the result ({together})")
    got = tuple.__getitem__(got, slice(None))
    expect(len(got), len(returns), f"{where}: the number of results ({together})")
    exact = [None] * len(returns) if exact is None else exact
    for name, one, other, true in reversed(list(zip(returns, got, wanted, exact, strict=True))):
        expect(one, other, f"the {name}: {where}", true)


def _converted(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, nn.Module):
        return copy.deepcopy(value).to(dtype)
    return value.to(dtype) if is_float(value) else value


def _detached(results: Any) -> Any:
    if isinstance(results, tuple):
        return tuple(map(_detached, tuple.__iter__(results)))
    return results.detach() if is_tensor(results) else results


def _in_words(value: Any) -> str:
    if isinstance(value, nn.Module):
        return ""
    if is_tensor(value):
        dtype = "" if value.dtype in (torch.float32, torch.bool, torch.int64) else f" {dtype_name(value)}"
        return f" {numbers(value) if value.numel() <= FEW else tuple(value.shape)}{dtype}"
    if isinstance(value, set | frozenset):
        return f" {{{', '.join(map(repr, sorted(value)))}}}"
    return f" {value.__name__}" if callable(value) else f" {value!r}"
