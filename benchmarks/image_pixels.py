"""Compares the pixels that Kindling and Pillow read from image files.

    python benchmarks/image_pixels.py FOLDER... [--bench build/release/bin/kindling_bench]

Needs Pillow and NumPy. Takes all files in the folders, and in those within them, that begin as PNG, JPEG, BMP, WebP or TIFF files do:
icon themes and the test images of installed packages are such folders. Pillow's pixels are those of exif_transpose() and
convert("RGB"); its 16-bit images are scaled to 8 bits first. It drops the lower byte of 16-bit colors, where Kindling rounds: they may
differ by 1. Prints a line for each file whose pixels differ or that only one of the two reads, then the counts by format. Fails if a
file is missing in the answers.
"""

import argparse
import collections
import subprocess
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIGNATURES = {"PNG": b"\x89PNG\r\n\x1a\n", "JPEG": b"\xff\xd8\xff", "BMP": b"BM", "WebP": b"RIFF", "TIFF": (b"II*\0", b"MM\0*")}


def format_of(file):
    with open(file, "rb") as opened:
        first = opened.read(12)
    for name, signature in SIGNATURES.items():
        if first.startswith(signature) and (name != "WebP" or first[8:] == b"WEBP"):
            return name
    return None


def found_files(folders):
    """Yields each file once, also if links name it several times."""
    seen = set()
    for folder in folders:
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file() and "\n" not in str(file) and file.resolve() not in seen:
                seen.add(file.resolve())
                if kind := format_of(file):
                    yield kind, file


def pixels_of_pillow(file):
    import numpy
    from PIL import Image, ImageOps

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(file) as opened:
            image = ImageOps.exif_transpose(opened)
            if image.mode.startswith("I"):
                image = Image.fromarray((numpy.asarray(image).astype(numpy.uint32) * 255 // 65535).astype(numpy.uint8))
            return numpy.asarray(image.convert("RGB"))


def read_answer(stream):
    """Returns pixels, or the text of an error."""
    import numpy

    line = stream.readline().decode(errors="replace").rstrip("\n")
    if not line:
        sys.exit("the program has ended early")
    if line.startswith("error "):
        return line[len("error "):]
    height, width, channels = map(int, line.split())
    return numpy.frombuffer(stream.read(height * width * channels), numpy.uint8).reshape(height, width, channels)


def difference(ours, theirs):
    """Returns a kind of result, and what is to be printed of it."""
    refused, failed = isinstance(ours, str), isinstance(theirs, str)
    if refused and failed:
        return "refused by both", None
    if refused:
        return "refused by Kindling", ours
    if failed:
        return "refused by Pillow", theirs
    if ours.shape != theirs.shape:
        return "other sizes", f"{ours.shape} and {theirs.shape}"
    largest = int(abs(ours.astype(int) - theirs).max(initial=0))
    return ("equal", None) if largest == 0 else (f"differ by {'1' if largest == 1 else '2 or more'}", f"by {largest}" if largest > 1 else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--bench", default=ROOT / "build/release/bin/kindling_bench")
    arguments = parser.parse_args()
    counts = collections.defaultdict(collections.Counter)
    with subprocess.Popen([arguments.bench, "--case", "image_pixels"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        for kind, file in found_files(arguments.folders):
            program.stdin.write(f"{file}\n".encode())
            program.stdin.flush()
            ours = read_answer(program.stdout)
            try:
                theirs = pixels_of_pillow(file)
            except Exception as error:  # of any decoder
                theirs = f"{type(error).__name__}: {error}"
            result, text = difference(ours, theirs)
            counts[kind][result] += 1
            if text:
                print(f"{file}: {result}: {text}")
        program.stdin.close()
    for kind, results in sorted(counts.items()):
        print(f"{kind}: {sum(results.values())} files; " + ", ".join(f"{count} {result}" for result, count in results.most_common()))


if __name__ == "__main__":
    main()
