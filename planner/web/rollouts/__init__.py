"""Pages of rollouts and the fallback."""
