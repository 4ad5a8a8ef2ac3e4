"""Small automatic changes of a function, as a learner's slip would make them. The checks must notice them.

for mutant in mutants_of(exercise.function):
    if not is_rejected(exercise, mutant.function()):
        print(mutant.change)            # "-1 → -2 in: weights = torch.softmax(scores, dim=-1)"
"""

import ast
import contextlib
import copy
import inspect
import io
import itertools
import random
import textwrap
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from course_utils.exercises.exercise import Exercise, defined
from course_utils.exercises.judge import run_check
from course_utils.exercises.promises import sizes_of
from course_utils.exercises.state import state_kept
from course_utils.exercises.time_limit import OutOfTime, time_limit

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_BINARY: dict[type[ast.operator], list[type[ast.operator]]] = {
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Div, ast.Add],
    ast.Div: [ast.Mult],
    ast.FloorDiv: [ast.Mult],
    ast.Pow: [ast.Mult],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
}
_COMPARE: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.Gt],
    ast.LtE: [ast.Lt, ast.GtE],
    ast.Gt: [ast.GtE, ast.Lt],
    ast.GtE: [ast.Gt, ast.LtE],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
}
_NAMES = {
    **{"sum": ["mean"], "mean": ["sum"], "max": ["min"], "min": ["max"], "argmax": ["argmin"], "any": ["all"]},
    **{"all": ["any"], "sin": ["cos"], "cos": ["sin"], "tanh": ["sigmoid"], "var": ["std"], "stack": ["cat"]},
    **{"cat": ["stack"], "repeat_interleave": ["repeat"], "tril": ["triu"], "triu": ["tril"]},
    **{"float64": ["float32", "float16"], "float32": ["float16"], "inf": ["pi"], "double": ["float"]},
    **{"softmax": ["log_softmax"], "union": ["intersection"]},
}
_WRAPPED = ("({}).detach()", "({}).squeeze()", "({}).squeeze(-1)", "({}).float()", "({}).double()", "({}).half()")
_RESULT = (*_WRAPPED, "({}).to('cpu').numpy()", "({}).tolist()", "({}) * 1.001", "({}) + 1e-3")


_Path = tuple[tuple[str, int | None], ...]  # names of fields, and places in lists
_INNER = {"range", "len", "zip", "enumerate", "int", "tuple", "set"}


@dataclass(frozen=True)
class Mutant:
    """One change of a function. `function()` compiles it among the names of the original's module."""

    original: Callable[..., Any]
    change: str
    source: str

    def function(self) -> Callable[..., Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return defined(self.source, self.original, "a mutant of")


def mutants_of(function: Callable[..., Any], every: int = 1) -> list[Mutant]:
    """All single changes of the function's body that give another text, each text once; or only one in `every`.

    Guards are left out (`if …: raise …` without a promise in the docstring), and so are the texts of errors.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        return []
    tree.decorator_list = [decorator for decorator in tree.decorator_list if ast.unparse(decorator) == "triton.jit"]
    tree.returns, tree.name = None, function.__name__
    for argument in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs):
        if not tree.decorator_list:  # Triton needs to know what is a constant
            argument.annotation = None
    promised = "Raises" in (ast.get_docstring(tree) or "")
    if ast.get_docstring(tree):
        del tree.body[0]
    original, found = ast.unparse(tree), {}
    for path, node, new in itertools.islice(_changes(tree, promised), None, None, every):
        try:
            change, source = _changed(tree, path, node, new)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)
                compile(source, "<a mutant>", "exec")
        except (SyntaxError, ValueError, AttributeError, TypeError):
            continue
        if source != original and source not in found:
            found[source] = Mutant(function, change, source)
    return list(found.values())


def _changes(tree: ast.FunctionDef, promised: bool) -> Iterator[tuple[_Path, ast.AST, ast.AST | None]]:
    """Every change of one node: the way to it, the node, and what could stand in its place."""
    for path, node in _nodes(tree, (), promised):
        for new in _instead_of(node, tree):
            yield path, node, new


def _changed(tree: ast.FunctionDef, path: _Path, node: ast.AST, new: ast.AST | None) -> tuple[str, str]:
    """A change in words, and the text of the function with it."""
    changed = copy.deepcopy(tree)
    _put(changed, path, new)
    line = ast.unparse(_statement(tree, path)).split("\n")[0]
    old_text, new_text = (ast.unparse(ast.fix_missing_locations(x)) if x else "nothing" for x in (node, new))
    words = f"{_first_line(old_text)} → {_first_line(new_text)} in: {line}"
    return words, ast.unparse(ast.fix_missing_locations(changed))


def _nodes(node: ast.AST, path: _Path, promised: bool) -> Iterator[tuple[_Path, ast.AST]]:
    """Every node below `node`, with the way to it."""
    for name, value in ast.iter_fields(node):
        if isinstance(node, ast.FunctionDef) and name == "args":
            continue
        for place, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise) or _is_guard(child, promised):
                continue
            here = (*path, (name, place))
            yield here, child
            yield from _nodes(child, here, promised)


def _is_guard(node: ast.AST, promised: bool) -> bool:
    """`if …: raise …`, or a loop around one, which refuses inputs that nobody promised to refuse."""
    if promised or not isinstance(node, ast.If | ast.For):
        return False
    return all(isinstance(x, ast.Raise) or _is_guard(x, promised) for x in node.body)


def _instead_of(node: ast.AST, tree: ast.FunctionDef) -> Iterator[ast.AST | None]:
    """What could stand in the place of a node; None: nothing."""
    if isinstance(node, ast.stmt):
        yield from _statements(node)
    elif isinstance(node, ast.BinOp):
        for kind in _BINARY.get(type(node.op), []):
            yield ast.BinOp(node.left, kind(), node.right)
        if isinstance(node.op, ast.MatMult | ast.Sub | ast.Div | ast.Pow):
            yield ast.BinOp(node.right, node.op, node.left)
        if isinstance(node.op, ast.Pow):
            yield ast.Call(ast.Name("int"), [node], [])
        yield from (node.left, node.right)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for kind in _COMPARE.get(type(node.ops[0]), []):
            yield ast.Compare(node.left, [kind()], node.comparators)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Name):
        yield from _other_names(node, tree)
    elif isinstance(node, ast.Attribute):
        yield from (ast.Attribute(node.value, name, node.ctx) for name in _NAMES.get(node.attr, []))
        if node.attr == "inf":
            yield from (ast.Constant(1e9), ast.Constant(1e4), ast.Constant(100), ast.Constant(0))
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.Tuple | ast.List) and len(node.elts) > 1 and isinstance(node.ctx, ast.Load):
        for i in range(len(node.elts) - 1):
            swapped = [*node.elts[:i], node.elts[i + 1], node.elts[i], *node.elts[i + 2 :]]
            yield type(node)(swapped, node.ctx)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield node.value


def _statements(node: ast.stmt) -> Iterator[ast.AST | None]:
    if isinstance(node, ast.Return) and node.value is not None:
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for i, value in enumerate(values):
            for text in () if isinstance(value, ast.Starred) else _RESULT:
                new = ast.parse(text.format(ast.unparse(value)), mode="eval").body
                yield ast.Return(_with(node.value, i, new))
        if len(values) > 1:
            yield from (ast.Return(value) for value in values)
            yield ast.Return(ast.List(values, ast.Load()))
    elif isinstance(node, ast.Assign):
        for text in _WRAPPED:
            yield ast.Assign(node.targets, ast.parse(text.format(ast.unparse(node.value)), mode="eval").body)
        yield None
    elif isinstance(node, ast.If):
        yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        yield None
    elif isinstance(node, ast.AugAssign | ast.Expr | ast.Break | ast.Continue):
        yield None


def _with(value: ast.expr, place: int, new: ast.expr) -> ast.expr:
    if not isinstance(value, ast.Tuple):
        return new
    return ast.Tuple([new if i == place else old for i, old in enumerate(value.elts)], ast.Load())


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, int):
        yield from (ast.Constant(node.value + 1), ast.Constant(node.value - 1))
    elif isinstance(node.value, float):
        yield from (ast.Constant(node.value * 2), ast.Constant(0.0), ast.Constant(node.value * 1.01))


def _other_names(node: ast.Name, tree: ast.FunctionDef) -> Iterator[ast.AST]:
    """Another parameter in its place: `values` for `keys`."""
    parameters = [a.arg for a in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)]
    assigned = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    known = list(dict.fromkeys(parameters + assigned))
    if isinstance(node.ctx, ast.Load) and node.id in known:
        yield from (ast.Name(name, node.ctx) for name in known if name != node.id)


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    for i in range(len(node.keywords)):
        yield ast.Call(node.func, node.args, [*node.keywords[:i], *node.keywords[i + 1 :]])
    for i in range(0 if _is_symmetric(node) else len(node.args) - 1):
        swapped = [*node.args[:i], node.args[i + 1], node.args[i], *node.args[i + 2 :]]
        yield ast.Call(node.func, swapped, node.keywords)
    if node.args:
        yield ast.Call(node.func, node.args[:-1], node.keywords)
    if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
        yield node.func.value
    elif len(node.args) > 0 and not isinstance(node.args[0], ast.Starred):
        yield node.args[0]
    if not _is_inner(node):
        yield from (ast.parse(text.format(ast.unparse(node)), mode="eval").body for text in _WRAPPED[:2])


def _is_symmetric(node: ast.Call) -> bool:
    """The order of its arguments means nothing."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in {"transpose", "swapaxes", "swapdims", "promote_types", "maximum", "minimum", "equal"}


def _is_inner(node: ast.Call) -> bool:
    """A call that gives no tensor."""
    return isinstance(node.func, ast.Name) and node.func.id in _INNER


def _is_module(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in {"torch", "F", "nn", "math", "copy", "itertools", "functools"}


def _put(tree: ast.AST, path: _Path, new: ast.AST | None) -> None:
    """Replace the node at the end of the way; a statement that is replaced by nothing becomes `pass`."""
    for name, place in path[:-1]:
        tree = getattr(tree, name) if place is None else getattr(tree, name)[place]
    name, place = path[-1]
    new = ast.Pass() if new is None else copy.deepcopy(new)
    if place is None:
        setattr(tree, name, new)
    else:
        getattr(tree, name)[place] = new


def _statement(tree: ast.AST, path: _Path) -> ast.AST:
    """The innermost statement on the way."""
    found = tree
    for name, place in path:
        tree = getattr(tree, name) if place is None else getattr(tree, name)[place]
        found = tree if isinstance(tree, ast.stmt) else found
    return found


def _first_line(text: str) -> str:
    return text.split("\n")[0]


def is_rejected(exercise: Exercise, answer: Callable[..., Any], seconds: float = 2) -> bool:
    """Whether a check fails, or the time runs out; nothing is said, so it stops at the first one.

    All checks of an exercise take a fraction of a second. Many small changes make a loop endless, so the time is short.
    """
    with state_kept([exercise]) as originals, contextlib.redirect_stdout(io.StringIO()):
        try:
            with time_limit(seconds):
                called = exercise.called(answer)
                return any(run_check(check, called, originals.put_back).problem for check in exercise.checks)
        except OutOfTime:
            return True


def is_equivalent(exercise: Exercise, answer: Callable[..., Any], draws: int = 60) -> bool:
    """Whether the answer does what the reference does in random calls: leading dimensions, sizes, dtypes, gradients.

    Only where the exercise has made a promise for all sizes; else nothing is known, and the answer is no.
    """
    rng = random.Random(0)
    calls = []
    for inputs in exercise.samples:
        for _ in range(draws):
            lead = [rng.randint(1, 3) for _ in range(rng.randint(0, 3))]
            sizes = {name: rng.randint(1, 6) for name in sizes_of(inputs)}
            calls.append(inputs(*lead, **sizes).to(rng.choice(DTYPES)))
    trial = copy.copy(exercise)
    trial.checks = trial.checks[-1:]
    trial.cases("random calls", *calls)
    if any(check.kind == "gradients" for check in exercise.checks):
        trial.gradients("random gradients", *(call.to(torch.float64) for call in calls[:20]))
    return bool(calls) and not is_rejected(trial, answer, exercise.seconds)
