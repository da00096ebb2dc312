"""What the pages of plans show, and explanations of their tables."""
