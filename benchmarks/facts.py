"""What each line of results says about the machine and the build, and the file that the scripts of this directory append it to."""

import json
import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def machine_facts():
    """Call it before the measurement, so that "build" is the commit that was measured and the load that of other programs."""
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return {"build": commit, "cpu_model": cpu_model(), "cores": os.cpu_count(), "load_1min": round(os.getloadavg()[0], 2)}


def append_result(path, result):
    """Appends a line to the file; without a path does nothing."""
    if path:
        with open(path, "a") as file:
            file.write(json.dumps(result) + "\n")
