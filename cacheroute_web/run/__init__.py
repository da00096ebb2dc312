"""`make run`: the bootstrap that makes the virtual environment, and the supervisor that runs in it."""
