"""Running a notebook with somebody's answers: which lesson it is, which cells count, the run, the points."""
