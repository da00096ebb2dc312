"""CacheRoute Web: plans of prefix-affinity routing, from measured key rates to an audited routing table."""

__version__ = "0.1.0"
