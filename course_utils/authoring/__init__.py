"""Making notebooks: put answers in, run, store outputs, test with nbval."""
