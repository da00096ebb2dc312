"""Pages of calibrations."""
