"""How much memory a process takes."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path


def resident() -> int:
    """Bytes that this process has in memory now; where the system does not tell, the most it ever had."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
