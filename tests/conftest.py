"""Before anything is imported: the shapes in the signatures of the lessons and of what they share are enforced."""

import ast
import sys

import jaxtyping
import pytest
from jaxtyping import _import_hook as hook

# Triton compiles the source of a kernel, whose annotations are no types: it must get the function itself.
hook._is_no_type_check = lambda node, rule=hook._is_no_type_check: rule(node) or ast.unparse(node) == "triton.jit"
jaxtyping.install_import_hook(["course_utils.lessons", "course_utils.training"], "beartype.beartype")
pytest.register_assert_rewrite("tests.helpers")


@pytest.fixture
def no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a learner calls the functions: the tests' own check of shapes, which comes first, is off."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are not compiled, which takes seconds for each; the tests of the lesson compile all answers at once."""
    monkeypatch.setattr("course_utils.exercises.kernels.can_compile", lambda: False)


@pytest.fixture
def interrupts_may_get_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time limit may interrupt code where Python can only report it (`__del__`); pytest would fail the test."""
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
