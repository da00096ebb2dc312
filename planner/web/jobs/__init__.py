"""Panel of jobs."""
