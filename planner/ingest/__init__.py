"""Import of workloads: every fault names file, row and field, and every repair is counted."""

from planner.ingest.common import ImportedWorkload, ImportProblem, Notice
from planner.ingest.formats import FORMATS, detect_format, read_workload
from planner.ingest.source import open_text
from planner.ingest.sweep_csv import ImportedSweep, read_sweep

__all__ = [
    "FORMATS",
    "ImportProblem",
    "ImportedSweep",
    "ImportedWorkload",
    "Notice",
    "detect_format",
    "open_text",
    "read_sweep",
    "read_workload",
]
