"""Django pages and forms, one package a noun."""
