"""State of rollouts, holds, rollback targets and blast radius."""
