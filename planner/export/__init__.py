"""Export of routing tables to data planes."""
