"""Is this what was expected? If not, say why: type first, then shape, then dtype, then values.

Everything a check compares goes through `expect`. Types are compared by what `type(...)` says, which no object can
fake, so an object that claims to equal everything never passes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor, nn

# (relative, absolute) error that rounding may cause, by dtype. The absolute one is for numbers up to 1 and grows with
# the largest number of the tensor: what is summed to a number near zero may be as large as that, and was rounded too.
# Half precision has no relative error of its own: where a sum is rounded many times, small and large numbers suffer.
TOLERANCE = {
    torch.float64: (1e-7, 1e-9),
    torch.float32: (1e-4, 1e-5),
    torch.float16: (0.0, 8 * torch.finfo(torch.float16).eps),
    torch.bfloat16: (0.0, 8 * torch.finfo(torch.bfloat16).eps),
}
FEW = 12  # tensors up to this many numbers are shown whole
ALL_DIGITS = 17  # of a float64


class Mismatch(Exception):
    """A check's verdict: `where` was `got`, it should have been `expected`."""

    def __init__(self, expected: Any, got: Any, where: str, exact: Any = None):
        super().__init__(where)
        self.expected, self.got, self.where, self.exact = expected, got, where, exact

    def __str__(self) -> str:
        if self.expected is self.got is None:
            return self.where  # all is said
        return f"{self.where}\n{difference(self.expected, self.got, self.exact) or 'not as expected'}"


def expect(got: Any, expected: Any, where: str, exact: Any = None) -> None:
    """Raise `Mismatch` unless `got` has the type, shape, dtype and (up to rounding) the values of `expected`.

    Tensors, numbers, strings, None, and lists, tuples, sets and dicts of these can be expected. `exact` is the same in
    float64, where it is known: then the values are compared with it, and `expected` says the type, shape and dtype.
    """
    if difference(expected, got, exact) is not None:
        raise Mismatch(expected, got, where, exact)


def same(expected: Any, got: Any) -> bool:
    """Whether `expect` would accept `got`."""
    return difference(expected, got) is None


def difference(expected: Any, got: Any, exact: Any = None) -> str | None:
    """What distinguishes `got` from `expected`, in words; None if nothing does."""
    if is_tensor(expected):
        return _tensor_difference(expected, got, expected if exact is None else exact)
    kind = next((k for k in (bool, int, float, str, list, tuple, dict, set, frozenset) if type(expected) is k), None)
    got = _plain(got, kind)
    if type(got) is not type(expected):
        return f"expected {describe(expected)}\ngot      {describe(got)}{_advice(got, expected)}"
    if isinstance(expected, list | tuple):
        return _sequence_difference(expected, got, exact)
    if isinstance(expected, dict):
        return difference(sorted(expected.items()), sorted(got.items()))
    if isinstance(expected, float):
        return difference(*(torch.tensor(x, dtype=torch.float32) for x in (expected, got)))
    if kind is not None or expected is None:
        return None if got == expected else f"expected {_short(repr(expected))}\ngot      {_short(repr(got))}"
    return None if got is expected else f"expected {describe(expected)}\ngot another one"


def _plain(value: Any, kind: type | None) -> Any:
    """A `numpy.float64` as the float that it is, a named tuple as a tuple: read by the base class, not by its own.

    An int may stand where a float is expected, as everywhere in Python.
    """
    if kind is float and type(value) is int:
        return float(value)
    if kind is None or type(value) in (kind, bool) or not issubclass(type(value), kind):
        return value
    if kind in (int, float):
        return int.__add__(value, 0) if kind is int else float.__add__(value, 0.0)
    if kind is dict:
        return dict(dict.items(value))
    return kind(getattr(kind, "__iter__")(value))  # noqa: B009 (the type's own: a subclass may have another)


def is_tensor(value: Any) -> bool:
    """A plain tensor whose values can be read: a subclass could answer "yes" to every question."""
    if type(value) not in (Tensor, nn.Parameter):
        return False
    return value.layout == torch.strided and value.device.type != "meta" and not value.is_nested


def is_float(value: Any) -> bool:
    return is_tensor(value) and value.is_floating_point()


def describe(value: Any) -> str:
    """A value's type, and its shape or size, in a few words."""
    if value is None:
        return "None"
    if is_tensor(value):
        return f"a tensor of shape {tuple(value.shape)} and dtype {dtype_name(value)}"
    if type(value) in (bool, int, float, str):
        return f"the {type(value).__name__} {_short(repr(value))}"
    if type(value) in (list, tuple, dict, set, frozenset):
        return f"a {type(value).__name__} of length {len(value)}"
    special = f" ({value.layout}, device {value.device})" if type(value) is Tensor else ""
    return f"an object of type {type(value).__name__}{special}"


def _advice(got: Any, expected: Any = None) -> str:
    if got is None:
        return " (is a `return` missing?)"
    plain = type(expected) in (bool, int, float, list) and (is_tensor(got) or type(got).__module__ == "numpy")
    return " (`.item()` and `.tolist()` turn it into a Python value)" if plain else ""


def dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _short(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def _sequence_difference(expected: Any, got: Any, exact: Any) -> str | None:
    if len(expected) != len(got):
        return f"expected {_listed(expected)}\ngot      {_listed(got)}"
    exact = [None] * len(expected) if exact is None else exact
    for position, (wanted, found, true) in enumerate(zip(expected, got, exact, strict=True)):
        if found is got:
            return f"at [{position}]:\nexpected {describe(wanted)}\ngot      the {type(got).__name__} itself"
        why = difference(wanted, found, true)
        if why is not None:
            inner = why if why.startswith("at [") else f":\n{why}"
            return f"at [{position}]{inner.removeprefix('at ')}"
    return None


def _listed(values: Any) -> str:
    """A list's length, and what is in it where that is short and plain."""
    plain = all(type(x) in (int, float, str, list) for x in values)
    return f"{describe(values)}: {_short(repr(list(values)))}" if plain else describe(values)


def _tensor_difference(expected: Tensor, got: Any, exact: Tensor) -> str | None:
    if not is_tensor(got):
        return f"expected {describe(expected)}\ngot      {describe(got)}{_advice(got)}"
    if got.shape != expected.shape:
        return f"expected shape {tuple(expected.shape)}\nbut got shape  {tuple(got.shape)}"
    if got.dtype != expected.dtype:
        return f"expected dtype {dtype_name(expected)}\nbut got dtype  {dtype_name(got)}"
    return _value_difference(exact.detach().cpu(), got.detach().cpu())


def _value_difference(expected: Tensor, got: Tensor) -> str | None:
    close = torch.isclose(got.double(), expected.double(), equal_nan=True, **_tolerance(got.dtype, expected))
    if bool(close.all()):
        return None
    if expected.numel() == 1:
        return "expected {}\ngot      {}".format(*_two_numbers(expected.reshape(()), got.reshape(())))
    parts = [_first_not_a_number(expected, got) or _largest_error(expected, got, close)]
    if got.dtype == torch.float64 and difference(expected.float(), got.float()) is None:
        parts += ["right in float32: was a part computed in less precision than the inputs have, or something added?"]
    if expected.numel() <= FEW:
        parts += [f"expected {numbers(expected)}", f"got      {numbers(got)}"]
    return "\n".join(parts)


def _tolerance(dtype: torch.dtype, expected: Tensor) -> dict[str, float]:
    relative, absolute = TOLERANCE.get(dtype, (0.0, 0.0))
    finite = expected.double().abs().nan_to_num(nan=0.0, posinf=0.0)
    largest = float(finite.max()) if finite.numel() else 0.0
    return {"rtol": relative, "atol": absolute * max(1.0, largest)}


def _first_not_a_number(expected: Tensor, got: Tensor) -> str | None:
    odd = ~torch.isfinite(got.double()) & torch.isfinite(expected.double())
    if not bool(odd.any()):
        return None
    first = tuple(odd.nonzero()[0].tolist())
    return f"got {got[first].item()} in {int(odd.sum())} of {got.numel()} places, first at {_index(first)}"


def _largest_error(expected: Tensor, got: Tensor, close: Tensor) -> str:
    wrong = f"{int((~close).sum())} of {got.numel()} values differ"
    error = (got.double() - expected.double()).abs().nan_to_num(nan=float("inf"))
    largest = int(error.where(~close, error.new_tensor(-1.0)).argmax())
    worst = tuple(map(int, numpy.unravel_index(largest, tuple(error.shape))))  # PyTorch's own loads SymPy: 2 seconds
    wanted, found = _two_numbers(expected[worst], got[worst])
    return f"{wrong}; the largest error is at {_index(worst)}: expected {wanted}, got {found}"


def _index(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]"


def _two_numbers(expected: Tensor, got: Tensor) -> tuple[str, str]:
    """Both with as many digits as it takes to see that they differ."""
    digits = 4
    while digits < ALL_DIGITS - 1 and _number(expected, digits) == _number(got, digits):
        digits += 1
    return _number(expected, digits), _number(got, digits)


def _number(value: Tensor, digits: int = 4) -> str:
    return f"{value.item():.{digits}g}" if value.is_floating_point() else str(value.item())


def numbers(values: Tensor) -> str:
    """All numbers of a small tensor, in brackets; a tensor without dimensions has none."""
    if values.dim() == 0:
        return _number(values)
    return "[" + ", ".join(numbers(row) for row in values) + "]"


def gradients(total: Callable[..., Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of the number `total(*inputs)` for each input; zeros where none arrives.

    `total` gets copies, so that the inputs stay as they are.
    """
    leaves = [value.clone().requires_grad_() for value in inputs]
    found = torch.autograd.grad(total(*leaves), leaves, allow_unused=True)
    return [torch.zeros_like(value) if one is None else one for one, value in zip(found, leaves, strict=True)]
