"""REST API, one package a noun."""
