"""Progress of jobs."""
