"""Forms of reviews, and the inbox."""
