"""Before anything is imported: the shapes in the signatures of the lessons and of what they share are enforced."""

from jaxtyping import install_import_hook

install_import_hook(["course_utils.lessons", "course_utils.training"], "beartype.beartype")
