"""What a verdict shows, and other plans of a replay."""
