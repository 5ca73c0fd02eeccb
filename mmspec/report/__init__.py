"""What a person gets to see and keep: sinks that events flow into, and the result folder.

Knows events, results and the trace; knows no model. A sink never changes a run.
"""

from mmspec.report.folder import JobFolder, ResultFolder, folder_name, output_errors, slug, write_config
from mmspec.report.previews import Pictures, Previews
from mmspec.report.provenance import Provenance
from mmspec.report.sink import Sink
from mmspec.report.terminal import Terminal, terminal

__all__ = [
    "JobFolder",
    "Pictures",
    "Previews",
    "Provenance",
    "ResultFolder",
    "Sink",
    "Terminal",
    "folder_name",
    "output_errors",
    "slug",
    "terminal",
    "write_config",
]
