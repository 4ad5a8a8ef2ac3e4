"""Before anything is imported: the shapes in the signatures of the lessons and of what they share are enforced."""

import jaxtyping
import pytest

jaxtyping.install_import_hook(["course_utils.lessons", "course_utils.training"], "beartype.beartype")
pytest.register_assert_rewrite("tests.helpers")


@pytest.fixture
def no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a learner calls the functions: the tests' own check of shapes, which comes first, is off."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
