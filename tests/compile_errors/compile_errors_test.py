"""Compiles the wrong programs of this folder and looks for the sentence that each line's comment `// error:` asks for.

compile_errors_test.py COMPILER FLAG...
"""
import pathlib
import re
import subprocess
import sys


def missing_sentences(source, command):
    """What of the sentences asked for is not an error of the compiler's: [(line, sentence)]."""
    lines = source.read_text(encoding="utf-8").splitlines()
    wanted = [(number, match[1]) for number, line in enumerate(lines, 1) if (match := re.search(r"// error: (.*)", line))]
    errors = subprocess.run([*command, "-fsyntax-only", str(source)], capture_output=True, text=True, check=False).stderr
    found = [line for line in errors.splitlines() if re.match(r"[^ ]+:\d+:\d+: error: ", line)]
    return [(number, text) for number, text in wanted
            if sum(text in line for line in found) < sum(text == other for _, other in wanted)], errors


def main():
    failed = False
    for source in sorted(pathlib.Path(__file__).parent.glob("*.cpp")):
        missing, errors = missing_sentences(source, sys.argv[1:])
        for number, text in missing:
            print(f"{source.name}:{number}: no error says '{text}'")
        if missing:
            print(errors)
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
