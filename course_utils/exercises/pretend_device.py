"""A GPU that does not exist: it shows on every machine where an answer forgets the device of its inputs.

Inside `PretendDevice` all tensors from outside seem to be on a GPU: `x.device` says so. A tensor that is made without
`device=` is on the CPU, as it would be in truth, and an operation on both raises, as PyTorch's would. Everything is
computed on the CPU, so code that reads values (`tolist`, `if mask.any()`) works too, unlike on the meta device.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

GPU = torch.device("cuda", 0)
_TORCH: Any = torch  # parts of PyTorch that a type checker does not know
_TENSOR: Any = Tensor
_MAKERS = {
    *(torch.arange, torch.as_tensor, torch.asarray, torch.empty, torch.eye, torch.from_numpy, torch.full),
    *(torch.linspace, torch.logspace, torch.normal, torch.ones, torch.rand, torch.randint, torch.randn),
    *(torch.randperm, torch.scalar_tensor, torch.tensor, torch.tril_indices, torch.triu_indices, torch.zeros),
}
# Operations that may mix devices: they move numbers, or their indices may be on the CPU.
_MIXING = {
    *(Tensor.to, Tensor.type_as, Tensor.copy_, Tensor.__getitem__, Tensor.__setitem__, Tensor.new_tensor),
    _TORCH._VF._pack_padded_sequence,  # it wants the lengths on the CPU
    _TENSOR.data.__set__,  # `module.to(device)`
}
_ABOUT_DEVICES = {torch.device, _TORCH._C._nn._parse_to, _TORCH._has_compatible_shallow_copy_type}
_TO_NUMPY = {Tensor.numpy, Tensor.__array__}


class PretendDevice(TorchFunctionMode):
    """`with PretendDevice() as device:` run the code, then ask `device.strangers(result)`."""

    def strangers(self, value: Any) -> list[Tensor]:
        """The tensors in `value` that would be on the CPU."""
        return [t for t in _tensors(value) if _on_cpu(t)]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        inputs = list(_tensors((args, kwargs)))
        if func in _ABOUT_DEVICES:
            return func(*args, **kwargs)
        if func == _TENSOR.device.__get__:
            return torch.device("cpu") if _on_cpu(args[0]) else GPU
        if func == _TENSOR.is_cuda.__get__:
            return not _on_cpu(args[0])
        if func == _TENSOR.is_cpu.__get__:
            return _on_cpu(args[0])
        if func is Tensor.get_device:
            return -1 if _on_cpu(args[0]) else 0
        if func is Tensor.cuda:
            func, args = Tensor.to, (args[0], GPU)
        if func in _TO_NUMPY and not _on_cpu(args[0]):
            raise TypeError("can't convert a tensor on a GPU to numpy: use Tensor.cpu() first")
        named = [x for x in (*args, *kwargs.values()) if _is_device(x)]
        args, kwargs = tuple(map(_truly, args)), {k: _truly(x) for k, x in kwargs.items()}
        if func not in _MIXING:
            self._refuse_two_devices(func, inputs)
        result: Any = func(*args, **kwargs)
        on_cpu = self._is_on_cpu(func, named, inputs)
        if any(result is x and on_cpu != _on_cpu(x) for x in inputs):
            result = result.view_as(result)  # `x.cpu()` is `x` itself here, and x stays where it is
        for tensor in _tensors(result):
            vars(tensor)["on_cpu"] = on_cpu
        if func == _TENSOR.data.__set__:
            args[0].on_cpu = _on_cpu(args[1])
        if func is _TORCH._VF._pack_padded_sequence:
            result[1].on_cpu = True  # the batch sizes
        return result

    def _is_on_cpu(self, function: Callable[..., Any], named: list[Any], inputs: list[Tensor]) -> bool:
        """Where the result of an operation is: where it was asked to be, else where its inputs are."""
        if function is Tensor.cpu:
            return True
        if named:
            return torch.device(named[-1]).type == "cpu"
        if function in _MAKERS and not (function in (torch.as_tensor, torch.asarray) and inputs):
            return True
        if function is Tensor.type_as:
            return _on_cpu(inputs[1])
        if function is Tensor.to:
            return _on_cpu(inputs[-1])  # `x.to(other)`, or `x.to(dtype)`
        if function in _MIXING:
            return _on_cpu(inputs[0])
        shaped = [t for t in inputs if t.dim()] or inputs
        return bool(shaped) and all(map(_on_cpu, shaped))

    def _refuse_two_devices(self, function: Callable[..., Any], inputs: list[Tensor]) -> None:
        """A tensor without dimensions may meet tensors of any device."""
        if len({_on_cpu(t) for t in inputs if t.dim()}) == 2:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but a tensor on the CPU met one on a GPU in "
                f"{resolve_name(function) or function}. Make new tensors with `device=` that of an input"
            )


def _on_cpu(tensor: Tensor) -> bool:
    return vars(tensor).get("on_cpu", False)


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (isinstance(value, str) and value.split(":")[0] in ("cpu", "cuda"))


def _truly(value: Any) -> Any:
    """Where the numbers really are."""
    return torch.device("cpu") if _is_device(value) else value


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
