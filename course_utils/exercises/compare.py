"""Is this what was expected? If not, say why: type first, then shape, then dtype, then values.

Everything a check compares goes through `expect`. Types are compared with `type(...) is`, which no
object can fake, so an object that claims to equal everything never passes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

# (relative, absolute) error that rounding alone may cause, by dtype.
TOLERANCE = {
    torch.float64: (1e-7, 1e-9),
    torch.float32: (1e-4, 1e-5),
    torch.float16: (1e-2, 1e-3),
    torch.bfloat16: (3e-2, 1e-2),
}
FEW = 12  # tensors up to this many numbers are shown whole


class Mismatch(Exception):
    """A check's verdict: `where` was `got`, it should have been `expected`."""

    def __init__(self, expected: Any, got: Any, where: str):
        super().__init__(where)
        self.expected, self.got, self.where = expected, got, where

    def __str__(self) -> str:
        return f"{self.where}\n{difference(self.expected, self.got) or 'not as expected'}"


def expect(got: Any, expected: Any, where: str) -> None:
    """Raise `Mismatch` unless `got` has the type, shape, dtype and (up to rounding) the values of `expected`.

    Tensors, numbers, strings, None, and lists, tuples and dicts of these can be expected.
    """
    if difference(expected, got) is not None:
        raise Mismatch(expected, got, where)


def same(expected: Any, got: Any) -> bool:
    """Whether `expect` would accept `got`."""
    return difference(expected, got) is None


def difference(expected: Any, got: Any) -> str | None:
    """What distinguishes `got` from `expected`, in words; None if nothing does."""
    if is_tensor(expected):
        return _tensor_difference(expected, got)
    if type(got) is not type(expected):
        return f"expected {describe(expected)}\ngot      {describe(got)}{_advice(got, expected)}"
    if isinstance(expected, list | tuple):
        return _sequence_difference(expected, got)
    if isinstance(expected, dict):
        return difference(sorted(expected.items()), sorted(got.items()))
    if isinstance(expected, float):
        return difference(torch.tensor(expected, dtype=torch.float32), torch.tensor(got, dtype=torch.float32))
    if type(expected) in (int, bool, str, type(None)):
        return None if got == expected else f"expected {expected!r}\ngot      {_short(repr(got))}"
    return None if got is expected else f"expected {describe(expected)}\ngot another one"


def is_tensor(value: Any) -> bool:
    """A plain tensor whose values can be read: a subclass could answer "yes" to every question."""
    if type(value) not in (Tensor, nn.Parameter):
        return False
    return value.layout == torch.strided and value.device.type != "meta" and not value.is_nested


def describe(value: Any) -> str:
    """A value's type, and its shape or size, in a few words."""
    if value is None:
        return "None"
    if is_tensor(value):
        return f"a tensor of shape {tuple(value.shape)} and dtype {_dtype(value)}"
    if type(value) in (bool, int, float, str):
        return f"the {type(value).__name__} {_short(repr(value))}"
    if type(value) in (list, tuple, dict):
        return f"a {type(value).__name__} of length {len(value)}"
    special = f" ({value.layout}, device {value.device})" if type(value) is Tensor else ""
    return f"an object of type {type(value).__name__}{special}"


def _advice(got: Any, expected: Any = None) -> str:
    if got is None:
        return " (is a `return` missing?)"
    plain = type(expected) in (bool, int, float, list) and is_tensor(got)
    return " (`.item()` and `.tolist()` turn tensors into Python values)" if plain else ""


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _short(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def _sequence_difference(expected: Any, got: Any) -> str | None:
    if len(expected) != len(got):
        return f"expected {_listed(expected)}\ngot      {_listed(got)}"
    for position, (wanted, found) in enumerate(zip(expected, got, strict=True)):
        why = difference(wanted, found)
        if why is not None:
            inner = why if why.startswith("at [") else f":\n{why}"
            return f"at [{position}]{inner.removeprefix('at ')}"
    return None


def _listed(values: Any) -> str:
    """A list's length, and what is in it where that is short and plain."""
    plain = all(type(x) in (int, float, str, list) for x in values)
    return f"{describe(values)}: {_short(repr(list(values)))}" if plain else describe(values)


def _tensor_difference(expected: Tensor, got: Any) -> str | None:
    if not is_tensor(got):
        return f"expected {describe(expected)}\ngot      {describe(got)}{_advice(got)}"
    if got.shape != expected.shape:
        return f"expected shape {tuple(expected.shape)}\nbut got shape  {tuple(got.shape)}"
    if got.dtype != expected.dtype:
        return f"expected dtype {_dtype(expected)}\nbut got dtype  {_dtype(got)}"
    return _value_difference(expected.detach().cpu(), got.detach().cpu())


def _value_difference(expected: Tensor, got: Tensor) -> str | None:
    relative, absolute = TOLERANCE.get(expected.dtype, (0.0, 0.0))
    close = torch.isclose(got.double(), expected.double(), rtol=relative, atol=absolute, equal_nan=True)
    if bool(close.all()):
        return None
    if expected.numel() == 1:
        return f"expected {_number(expected)}\ngot      {_number(got)}"
    parts = [_first_not_a_number(expected, got) or _largest_error(expected, got, close)]
    if expected.numel() <= FEW:
        parts += [f"expected {_numbers(expected)}", f"got      {_numbers(got)}"]
    return "\n".join(parts)


def _first_not_a_number(expected: Tensor, got: Tensor) -> str | None:
    odd = ~torch.isfinite(got.double()) & torch.isfinite(expected.double())
    if not bool(odd.any()):
        return None
    first = tuple(odd.nonzero()[0].tolist())
    return f"got {got[first].item()} in {int(odd.sum())} of {got.numel()} places, first at {_index(first)}"


def _largest_error(expected: Tensor, got: Tensor, close: Tensor) -> str:
    wrong = f"{int((~close).sum())} of {got.numel()} values differ"
    error = (got.double() - expected.double()).abs().nan_to_num(nan=float("inf"))
    worst = tuple(torch.unravel_index(error.where(~close, error.new_tensor(-1.0)).argmax(), error.shape))
    place = _index(tuple(int(i) for i in worst))
    return f"{wrong}; the largest error is at {place}: expected {_number(expected[worst])}, got {_number(got[worst])}"


def _index(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]"


def _number(value: Tensor) -> str:
    return f"{value.item():.4g}" if value.is_floating_point() else str(value.item())


def _numbers(values: Tensor) -> str:
    if values.dim() <= 1:
        return "[" + ", ".join(_number(v) for v in values.reshape(-1)) + "]"
    return "[" + ", ".join(_numbers(row) for row in values) + "]"


def gradients(total: Callable[..., Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of the number `total(*inputs)` for each input; zeros where none arrives.

    `total` gets copies, so that the inputs stay as they are.
    """
    leaves = [value.clone().requires_grad_() for value in inputs]
    found = torch.autograd.grad(total(*leaves), leaves, allow_unused=True)
    return [torch.zeros_like(value) if one is None else one for one, value in zip(found, leaves, strict=True)]
