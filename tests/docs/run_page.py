"""Runs the blocks of a page that has Python blocks, in the order of the page and in one empty folder, as a reader would type them.

    run_page.py PYTHON PAGE FOLDER_OF_KINDLING CONFIGS [COMMAND...]

Python blocks share one session of PYTHON, so that a block may use what an earlier one has defined or a C++ program has written. COMMAND
number n runs the page's ```cpp block n; ```sh blocks that begin with `kindling` and ```toml blocks with a first line `# NAME.toml` count,
too. ```fortran blocks are compiled and run by run_fortran.sh, with the libraries of KINDLING_LIBRARIES. Nothing is run after the last
Python or Fortran block.

The first line of a Python block may be `# Run: python NAME.py ARGUMENT...`, which sets sys.argv, or `# not run: REASON`, which skips it.
A comment of the page that begins with a line `<!-- run python` or `<!-- run sh` is run, too: it prepares what the page takes for granted.
Exits with 77 (skipped) where PYTHON cannot import torch, or a module that a block needs.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"^(```|<!-- run )(cpp|fortran|python|sh|toml)\n(.*?)^(?:```|-->)$", re.MULTILINE | re.DOTALL)
SKIPPED = 77
TESTS = Path(__file__).resolve().parents[1]


def skip(reason):
    print(f"skipped: {reason}", flush=True)
    sys.exit(SKIPPED)


def run_command(where, command, **options):
    code = subprocess.run(command, **options).returncode
    if code == SKIPPED:
        skip(f"{where} cannot run here")
    if code != 0:
        sys.exit(f"{where}: exit code {code}")


def run_python(where, text, line, session):
    if reason := re.match(r"# not run: (.+)\n", text):
        print(f"{where}: not run: {reason[1]}", flush=True)
        return
    arguments = re.match(r"# Run: python (.+)\n", text)
    sys.argv = shlex.split(arguments[1]) if arguments else ["block.py"]
    # Lines of the page, so that a traceback leads there.
    code = compile("\n" * line + text, where, "exec")
    try:
        exec(code, session)
    except ModuleNotFoundError as error:
        skip(f"{where} needs the Python module '{error.name}'")
    except SystemExit as end:
        if end.code not in (None, 0):
            sys.exit(f"{where}: exit code {end.code}")


def run_page(page, programs, configs, commands):
    page_text = page.read_text()
    blocks = list(BLOCK.finditer(page_text))
    while blocks and blocks[-1][2] not in ("python", "fortran"):
        blocks.pop()
    session = {"__name__": "__main__"}
    os.environ["KINDLING_PROGRAM_FOLDER"] = str(programs)  # for comments that prepare a page
    environment = dict(os.environ, PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")
    commands = iter(commands)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.symlink(configs, "configs")
        for block in blocks:
            opening, language, text = block.groups()
            line = page_text.count("\n", 0, block.start(3))
            where = f"{page.name}:{line + 1}"
            if language == "python":
                run_python(where, text, line, session)
            elif language == "cpp":
                run_command(where, shlex.split(next(commands)))
            elif language == "fortran":
                Path("program.fortran").write_text(text)
                run_command(where, ["bash", TESTS / "docs/run_fortran.sh", TESTS.parent, os.environ["KINDLING_LIBRARIES"],
                                    Path("program.fortran").resolve(), Path.cwd()])
            elif language == "sh" and (opening != "```" or text.startswith("kindling ")):
                run_command(where, ["bash", "-euo", "pipefail", "-c", text], env=environment)
            elif name := re.match(r"# ([a-z_]+\.toml)\n", text):
                Path(name[1]).write_text(text)
        os.chdir("/")


def main():
    python, page, programs, configs, *commands = sys.argv[1:]
    if os.environ.get("KINDLING_PAGE_PYTHON") != python:
        if not Path(python).exists() or subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode != 0:
            skip(f"{python} cannot import torch")
        os.environ["KINDLING_PAGE_PYTHON"] = python
        os.execv(python, [python, "-B", __file__, *sys.argv[1:]])
    run_page(Path(page).resolve(), Path(programs).resolve(), Path(configs).resolve(), commands)


if __name__ == "__main__":
    main()
