"""How long (s) a bare command takes until a process is gone, as JSON: run inside a lab.

`process_exit_time.py PID COMMAND...`. Standard library only.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

TIMEOUT_S = 30.0
_POLL_S = 0.002
_PAUSE = threading.Event()


def main() -> None:
    """Run the command and watch the process."""
    process = Path("/proc", sys.argv[1], "exe")
    began = time.monotonic()
    command = subprocess.run(sys.argv[2:], capture_output=True, timeout=TIMEOUT_S, check=True)
    while process.exists():
        if time.monotonic() > began + TIMEOUT_S:
            sys.exit(f"process {sys.argv[1]} is still there after {TIMEOUT_S:g} s: {command.stderr.decode()}")
        _PAUSE.wait(_POLL_S)
    print(json.dumps(time.monotonic() - began))


if __name__ == "__main__":
    main()
