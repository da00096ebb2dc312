"""What the page of a calibration shows."""
