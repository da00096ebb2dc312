"""Replays: options, cells, verdicts and completion."""
