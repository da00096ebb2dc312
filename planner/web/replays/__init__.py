"""Forms that order replays."""
