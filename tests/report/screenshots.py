"""Takes the screenshots of a report that docs/guides/reading_a_run.md shows.

    KINDLING_PROGRAM=build/release/bin/kindling python tests/report/screenshots.py
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import browser

ROOT = Path(__file__).resolve().parent.parent.parent


def main():
    program = Path(os.environ["KINDLING_PROGRAM"]).resolve()
    page = browser.Browser(browser.find() or sys.exit("chromium was not found"))
    with tempfile.TemporaryDirectory() as folder:  # in no repository, whose commit the report would show
        shutil.copy(ROOT / "configs/digits.toml", folder)
        subprocess.run([program, "fit", "-c", "digits.toml", "trainer.log_every_n_steps=5", "trainer.num_gpus=0", "--quiet"],
                       cwd=folder, check=True)
        report = Path(folder) / "runs/digits/0001/report.html"
        page.open(report, 1000, height=650)
        x, y, width, height = page.evaluate(
            "(r => [r.x, r.y, r.width, r.height])(document.querySelector('.plot').getBoundingClientRect())")
        page.mouse("mouseMoved", x + 0.6 * width, y + height / 2)
        page.screenshot(ROOT / "docs/guides/report.png", full=False)
        page.open(report, 400, dark=True, height=720)
        page.screenshot(ROOT / "docs/guides/report_phone.png", full=False)
    page.close()


if __name__ == "__main__":
    main()
