"""Reads for pages, API and services, one package a noun."""
