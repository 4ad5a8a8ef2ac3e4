"""How long a lesson takes: what its title prints is counted from the notebook, not guessed."""

import math

from nbformat import NotebookNode

from course_utils.authoring.assemble import code_cells, role
from course_utils.exercises.exercise import Exercise

# A reader whose first language is not English, who follows the numbers: slower than a novel.
WORDS, CODE_LINES, PICTURES = 150, 15, 1  # per minute: near what readers of lessons 01 to 06 said
_NOT_READ = ("setup", "answer", "check", "summary")  # the exercises' minutes hold the answer cells


def minutes(notebook: NotebookNode, exercises: dict[str, Exercise]) -> int:
    """Reading its text, code and pictures, and the exercises' minutes, rounded up to ten minutes."""
    words = sum(len(cell.source.split()) for cell in notebook.cells if cell.cell_type == "markdown")
    read = [cell for cell in code_cells(notebook) if role(cell) not in _NOT_READ]
    lines = sum(bool(line.strip()) for cell in read for line in cell.source.splitlines())
    pictures = sum("image/png" in output.get("data", {}) for cell in read for output in cell.outputs)
    exercise_minutes = sum(exercise.minutes for exercise in exercises.values())
    return 10 * math.ceil((words / WORDS + lines / CODE_LINES + pictures / PICTURES + exercise_minutes) / 10)
