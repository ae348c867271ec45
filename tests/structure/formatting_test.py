"""Every C++ file has the layout of .clang-format, as the pinned version of clang-format writes it.

  formatting_test.py CLANG_FORMAT    exits with 77 if there is no such program (scripts/test.sh installs it)
"""

import os
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TOPS = ("apps", "benchmarks", "include", "src", "tests")


def sources():
    for top in TOPS:
        yield from sorted(path for path in (REPOSITORY / top).rglob("*") if path.suffix in (".cpp", ".h"))


def main():
    program = Path(sys.argv[1]).absolute()
    if not program.exists():
        print(f"skipped: {program} is missing; scripts/test.sh installs it")
        return 77
    files = [str(path.relative_to(REPOSITORY)) for path in sources()]
    if len(files) < 500:
        print(f"only {len(files)} C++ files were found")
        return 1
    # Several at once, because one process reads the files one after the other.
    batches = [files[start::os.cpu_count()] for start in range(os.cpu_count())]
    runs = [subprocess.Popen([program, "--dry-run", *batch], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) for batch in batches]
    messages = "".join(run.communicate()[1] for run in runs)
    changed = sorted(set(re.findall(r"^(\S+):\d+:\d+: warning: code should be clang-formatted", messages, re.MULTILINE)))
    if any(run.returncode != 0 for run in runs) or (messages and not changed):
        print(messages)
        return 1
    for file in changed:
        print(f"{file}: not formatted")
    if changed:
        print(f"format with:\n  {program} -i {' '.join(changed)}")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
