"""The report of a run in a browser: it loads nothing, writes nothing to the console, fits its window, and reacts to the pointer."""

import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import browser  # noqa: E402

PROGRAM = os.environ.get("KINDLING_PROGRAM", "")
HOSTILE = "</script><script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"
WIDTHS = (1400, 400)


def npy_of(shape, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}f", *values)


def run_folder(folder, epochs, metrics, nan=False, matrix=False, fields=False):
    """Writes the files of a run: `metrics` curves per epoch, of which one may have gaps."""
    folder.mkdir(parents=True)
    with open(folder / "metrics.jsonl", "w") as lines:
        for epoch in range(1, epochs + 1):
            record = {"epoch": epoch, "global_step": 45 * epoch}
            for i in range(metrics):
                record["train_loss" if i == 0 else f"val_metric_{i}_of_a_long_name"] = 2 / (1 + epoch) + math.sin(epoch + i) / 9
            if nan and epoch % 3 == 2:
                record["train_loss"] = None
            if matrix:
                record.update({f"val_confusion_matrix[{i}][{j}]": 9 if i == j else (i + j) % 3
                               for i in range(10) for j in range(10)})
            record.update({"lr": 0.1, "epoch_time_s": 1.5, "samples_per_s": 1000, "host_waits": 3, "time_share/forward": 0.4})
            lines.write(json.dumps(record) + "\n")
    summary = {"status": "finished", "device": "cpu", "note": HOSTILE * 3, "kindling": "1"}
    if matrix:
        summary["validation_report"] = {"weights": "best", "step": 45, "samples": 300, "ece": 0.05}
        (folder / "confusion_matrix.csv").write_text("label,a long name of a class,b\na long name of a class,9,1\nb,0,7\n")
        (folder / "calibration.csv").write_text("bin,from,to,samples,mean_confidence,accuracy\n1,0,0.5,0,,\n2,0.5,1,300,0.9,0.85\n")
        (folder / "residuals.csv").write_text("sample,target,predicted,residual\n" + "".join(
            f"{i},{i},{math.cos(i)},{math.sin(i)}\n" for i in range(300)))
        (folder / "worst_predictions.csv").write_text(f"sample,file,target,predicted,loss\n7,{HOSTILE},1.5,2,0.25\n")
    if fields:  # a square, and a strip that is stretched
        summary["validation_report"] = {"weights": "last", "step": 45, "samples": 300}
        (folder / "field_errors.npy").write_bytes(npy_of((3, 30, 30) if fields == "square" else (1, 2, 900), [
            math.nan if i % 7 == 0 else i % 31 for i in range(2700 if fields == "square" else 1800)]))
    (folder / "run.json").write_text(json.dumps(summary))
    (folder / "config.toml").write_text("name = \"" + HOSTILE + "\"\n" + "x" * 300 + "\n")
    (folder / "command.txt").write_text("kindling fit " + "key=value " * 60 + "\n")
    (folder / "model.csv").write_text(
        "name,type,input,output,parameters\n" + "net.blocks.0.attention.output,Linear,\"[64, 784]\",\"[64, 256]\",200960\n" * 9)
    (folder / "log.txt").write_text("2026-03-01 12:00:00.123 warning: " + "a warning " * 40 + HOSTILE + "\n")
    return folder


@unittest.skipUnless(PROGRAM, "KINDLING_PROGRAM is not set")
class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="kindling-report-")
        cls.folder = Path(cls.temporary.name)
        cls.browser = browser.Browser(browser.find())

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.temporary.cleanup()

    def report(self, name, **contents):
        folder = self.folder / "runs" / name / "0001"
        page = self.folder / f"{name}.html"
        if not page.exists():
            run_folder(folder, **contents)
            subprocess.run([PROGRAM, "plot", folder, "--html", page, "--svg", page.with_suffix(".svg")], check=True)
        return page

    def open_cleanly(self, page, width, dark=False):
        requests, console = self.browser.open(page, width, dark)
        self.assertEqual([url for url in requests if not url.startswith("data:")], [f"file://{page}"])
        self.assertEqual(console, [])
        self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width, "the page overflows")

    def test_fits_every_window_in_both_color_schemes(self):
        for name, contents in {"one": {"epochs": 1, "metrics": 1}, "three": {"epochs": 3, "metrics": 20, "matrix": True},
                               "fields": {"epochs": 2, "metrics": 1, "fields": "square"},
                               "long": {"epochs": 2000, "metrics": 20}, "gaps": {"epochs": 9, "metrics": 2, "nan": True}}.items():
            page = self.report(name, **contents)
            for width in WIDTHS:
                for dark in (False, True):
                    with self.subTest(name=name, width=width, dark=dark):
                        self.open_cleanly(page, width, dark)
                        self.assertEqual(self.browser.evaluate(
                            "[...document.querySelectorAll('figure.chart')].filter(f => !f.querySelector('.plot path.curve')).length"), 0)
            self.open_cleanly(page.with_suffix(".svg"), 1400)

    def test_follows_the_color_scheme(self):
        page = self.report("three", epochs=3, metrics=20, matrix=True)
        grounds = []
        for dark in (False, True):
            self.open_cleanly(page, 1400, dark)
            grounds.append(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(grounds, ["rgb(255, 255, 255)", "rgb(21, 24, 28)"])

    def test_shows_hostile_names_as_text(self):
        self.open_cleanly(self.report("three", epochs=3, metrics=20, matrix=True), 1400)
        self.assertEqual(self.browser.evaluate("document.title"), "three/0001")
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('img').length"), 0)
        self.assertIn(HOSTILE, self.browser.evaluate("document.body.textContent"))

    def test_shows_pictures_of_fields(self):
        for name, count in ("square", 3), ("strip", 1):
            self.open_cleanly(self.report(name, epochs=2, metrics=1, fields=name), 1400)
            # [width of the file, width and height on the page]; a picture that is not loaded has no width
            sizes = self.browser.evaluate("[...document.querySelectorAll('.picture img')].map(image => ["
                                          "image.naturalWidth, image.clientWidth, image.clientHeight])")
            self.assertEqual([size[0] for size in sizes], [30] * 3 if name == "square" else [450])
            for _, width, height in sizes:
                self.assertGreater(width, 300)
                self.assertAlmostEqual(width / height, 1 if name == "square" else 12, delta=0.3)

    def test_text_of_charts_is_readable_on_a_phone(self):
        self.open_cleanly(self.report("three", epochs=3, metrics=20, matrix=True), 400)
        self.assertGreaterEqual(
            self.browser.evaluate("document.querySelector('.plot text').getBoundingClientRect().height"), 11)

    def test_marks_gaps(self):
        self.open_cleanly(self.report("gaps", epochs=9, metrics=2, nan=True), 1400)
        path = self.browser.evaluate("document.querySelector('.plot path.gap').getAttribute('d')")
        self.assertEqual(path.count("l6 6"), 3)
        self.assertIn("not finite", self.browser.evaluate("document.querySelector('.legend').textContent"))

    def plot_box(self):
        box = self.browser.evaluate("(r => [r.x, r.y, r.width, r.height])(document.querySelector('.plot').getBoundingClientRect())")
        self.assertIsNotNone(box)
        return box

    def test_shows_values_under_the_pointer(self):
        self.open_cleanly(self.report("gaps", epochs=9, metrics=2, nan=True), 1400)
        x, y, width, height = self.plot_box()
        self.browser.mouse("mouseMoved", x + width - 16, y + height / 2)
        tip = self.browser.evaluate("document.querySelector('.tip').textContent")
        self.assertEqual(tip, "epoch 9train_loss" + format(2 / 10 + math.sin(9) / 9, ".5g"))
        self.browser.mouse("mouseMoved", x + width / 2, y + height + 300)
        self.assertTrue(self.browser.evaluate("document.querySelector('.tip').hidden"))

    def test_zooms_hides_curves_and_changes_the_scale(self):
        self.open_cleanly(self.report("long", epochs=2000, metrics=20), 1400)
        curve = "document.querySelector('.plot path.curve').getAttribute('d')"
        reset = "document.querySelector('figcaption button')"
        before = self.browser.evaluate(curve)
        self.assertTrue(self.browser.evaluate(reset + ".hidden"))
        x, y, width, height = self.plot_box()
        for kind, at, buttons in (("mousePressed", 0.4, 1), ("mouseMoved", 0.6, 1), ("mouseReleased", 0.6, 0)):
            self.browser.mouse(kind, x + at * width, y + height / 2, buttons)
        self.assertFalse(self.browser.evaluate(reset + ".hidden"))
        self.assertNotEqual(self.browser.evaluate(curve), before)
        self.browser.open(self.folder / "long.html", 1400)
        self.assertFalse(self.browser.evaluate(reset + ".hidden"), "the zoom survives a reload")
        self.browser.evaluate(reset + ".click()")
        self.assertEqual(self.browser.evaluate(curve), before)
        self.browser.evaluate("document.querySelectorAll('figcaption button')[1].click()")
        self.assertNotEqual(self.browser.evaluate(curve), before, "on a logarithmic axis")
        self.browser.evaluate("document.querySelector('.legend button').click()")
        self.assertIsNone(self.browser.evaluate("document.querySelector('.plot').querySelector('path.curve')"))

    def killed_run(self):
        """Returns the report of a run that was killed."""
        folder = self.folder / "killed"
        report = folder / "digits" / "0001" / "report.html"
        run = subprocess.Popen([PROGRAM, "fit", "model.name=mlp", "data.name=digits", "name=digits", f"run.dir={folder}",
                                "trainer.max_epochs=100000", "trainer.num_gpus=0", "--quiet"])
        deadline = time.monotonic() + 60
        while not report.exists() and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        run.kill()
        run.wait()
        return report

    def test_stops_reloading_the_report_of_a_killed_run(self):
        report = self.killed_run()
        note = "(document.querySelector('header .stale') || {}).textContent"
        self.open_cleanly(report, 400)
        self.assertIsNone(self.browser.evaluate(note))
        self.assertTrue(self.browser.wait_for_load(20), "reloads while the file is new")
        later = self.browser.call("Page.addScriptToEvaluateOnNewDocument", source="const now = Date.now; Date.now = () => now() + 36e5;")
        self.open_cleanly(report, 400)
        self.assertRegex(self.browser.evaluate(note),
                         r"^No update since .+: the run may have been killed\. Reload the page to look again\.$")
        self.assertFalse(self.browser.wait_for_load(8), "does not reload an hour later")
        self.browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=later["identifier"])

    def test_compares_runs(self):
        runs = [run_folder(self.folder / "compared" / name / "0001", epochs=5, metrics=2) for name in ("a", "b")]
        page = self.folder / "compared.html"
        subprocess.run([PROGRAM, "plot", *runs, "--html", page], check=True)
        self.open_cleanly(page, 400)
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('figure.chart').length"), 3)
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('figure:first-child .legend button').length"), 2)


if __name__ == "__main__":
    if not browser.find():
        print("skipped: none of " + ", ".join(browser.NAMES) + " is on the PATH (Debian's package is chromium)")
        sys.exit(77)
    unittest.main()
