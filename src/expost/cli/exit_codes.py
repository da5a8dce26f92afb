"""What the program returns to the shell; docs/cli.md has the table."""

__all__ = ["DONE", "FAILED", "MISTAKE", "NO_RECOMMENDATION"]

# Done, as asked.
DONE = 0
# Something is wrong that is not the user's mistake: a check of `expost doctor`, a closed pipe.
FAILED = 1
# A mistake in what was asked; one sentence says which.
MISTAKE = 2
# Done, and the answer is that no epsilon is recommended.
NO_RECOMMENDATION = 3
