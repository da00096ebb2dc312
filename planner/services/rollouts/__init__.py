"""Rollouts: starts, steps, rollback, fallback and freezes."""
