"""The monitor: drift checks, canary analysis, automatic fallback and advance."""
