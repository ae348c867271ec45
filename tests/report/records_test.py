"""What Python's tensorboard, json, csv and tomllib read from the directories of runs, also of killed and resumed ones.

    records_test.py PYTHON_WITH_TENSORBOARD
"""

import csv
import json
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest
import urllib.request
from pathlib import Path

PROGRAM = os.environ.get("KINDLING_PROGRAM", "")
# Steps, validations within epochs, and epochs have records of different names.
FIT = ["fit", "model.name=mlp", "model.hidden=[16]", "data.name=digits", "trainer.num_gpus=0", "trainer.num_threads=1",
       "trainer.log_every_n_steps=3", "trainer.val_check_interval=0.5", "trainer.gradient_clip_val=1.0",
       "checkpoint.every_n_steps=10", "--quiet"]


def float32(value):
    return math.nan if value is None else struct.unpack("f", struct.pack("f", value))[0]


def same(points, expected):
    return len(points) == len(expected) and all(
        a[0] == b[0] and (a[1] == b[1] or math.isnan(a[1]) and math.isnan(b[1])) for a, b in zip(points, expected))


class Records(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="kindling-records-")
        cls.folder = Path(cls.temporary.name)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def words(self, name, *words):
        return [PROGRAM, *FIT, f"run.dir={self.folder}", f"name={name}", *words]

    def fit(self, name, *words):
        subprocess.run(self.words(name, *words), check=True, stdout=subprocess.DEVNULL)
        return self.folder / name / "0001"

    def stop(self, command, run, end, by):
        """Runs a command until the run's file of epochs has grown past `end` bytes, and sends it a signal."""
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        epochs, deadline = run / "metrics.csv", time.monotonic() + 60
        while not (epochs.exists() and epochs.stat().st_size > end) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(by)
        process.wait()
        return epochs.stat().st_size

    def check_events(self, run):
        """Compares every point in the event files with metrics.jsonl, and returns the lines of that."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            line.pop("log_digest", None)  # of no use in a chart
        expected = {}
        for line in lines:
            is_epoch = next(iter(line)) == "epoch"
            for name, value in line.items():
                points = expected.setdefault(name, []) if name != "global_step" and (is_epoch or name != "epoch") else None
                # A value of the epoch's last step, such as lr, is also in the epoch's line: one point.
                if points is not None and (not points or points[-1][0] != line["global_step"]):
                    points.append((line["global_step"], float32(value)))
        for purges in (True, False):  # orphaned points are removed from the files, not only hidden
            events = EventAccumulator(str(run), size_guidance={"scalars": 0}, purge_orphaned_data=purges)
            events.Reload()
            self.assertEqual(sorted(events.Tags()["scalars"]), sorted(expected))
            for name, points in expected.items():
                read = [(event.step, event.value) for event in events.Scalars(name)]
                self.assertTrue(same(read, points), f"{name}: {read} instead of {points}")
        return lines

    def test_reads_every_scalar_after_kills_and_resumes(self):
        run = self.folder / "killed" / "0001"
        size = self.stop(self.words("killed", "trainer.max_epochs=100000"), run, 500, signal.SIGKILL)
        resume = [PROGRAM, "fit", "--resume", run, "--quiet"]
        for _ in range(2):
            size = self.stop(resume, run, size + 500, signal.SIGKILL)
        epochs = len((run / "metrics.csv").read_text().splitlines()) + 2
        subprocess.run([*resume, f"trainer.max_epochs={epochs}"], check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(len(list(run.glob("events.out.tfevents.*"))), 4)
        lines = self.check_events(run)
        self.assertEqual([line["epoch"] for line in lines if next(iter(line)) == "epoch"], list(range(1, epochs + 1)))
        steps = [line["global_step"] for line in lines if "train_loss_step" in line]
        self.assertEqual(steps, list(range(3, steps[-1] + 1, 3)))

    def test_reads_values_that_are_not_finite(self):
        run = self.fit("gaps", "trainer.max_epochs=3", "optimizer.lr=1e30", "trainer.on_nonfinite=ignore")
        lines = self.check_events(run)
        self.assertTrue(any(value is None for line in lines for value in line.values()))

    def test_reads_the_other_files(self):
        run = self.fit("others", "trainer.max_epochs=3")
        lines = self.check_events(run)
        with open(run / "metrics.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([{name: float(value) for name, value in row.items() if value} for row in rows],
                         [line for line in lines if next(iter(line)) == "epoch"])
        summary = json.loads((run / "run.json").read_text())
        self.assertEqual(summary["status"], "finished")
        self.assertEqual(summary["global_step"], lines[-1]["global_step"])
        config = tomllib.loads((run / "config.toml").read_text())
        self.assertEqual((config["model"]["hidden"], config["trainer"]["max_epochs"]), ([16], 3))

    def test_shows_the_status_of_runs_in_the_tab_hparams(self):
        board = self.folder / "board"
        for name, words in {"finished": ["trainer.max_epochs=1"],
                            "early": ["trainer.max_epochs=99", "early_stopping.patience=1", "early_stopping.min_delta=1"],
                            "diverged": ["trainer.max_epochs=9", "optimizer.lr=1e30"]}.items():
            subprocess.run(self.words(name, f"run.dir={board}", *words), stdout=subprocess.DEVNULL)
        for name, by in {"interrupted": signal.SIGINT, "killed": signal.SIGKILL}.items():
            self.stop(self.words(name, f"run.dir={board}", "trainer.max_epochs=100000"), board / name / "0001", 500, by)
        self.assertEqual(self.statuses(board, 5), {
            "finished/0001": "STATUS_SUCCESS", "early/0001": "STATUS_SUCCESS", "diverged/0001": "STATUS_FAILURE",
            "interrupted/0001": "STATUS_UNKNOWN", "killed/0001": "STATUS_UNKNOWN"})

    def statuses(self, folder, count):
        """Asks a server of TensorBoard what the browser shows, once it has found so many runs."""
        from tensorboard import default, program
        server = program.TensorBoard(default.get_plugins())
        server.configure(argv=["tensorboard", "--logdir", str(folder), "--port", "0", "--load_fast", "false"])
        query = {"experimentName": "", "startIndex": 0, "sliceSize": 100,
                 "allowedStatuses": ["STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_UNKNOWN", "STATUS_RUNNING"]}
        request = urllib.request.Request(server.launch() + "data/plugin/hparams/session_groups", json.dumps(query).encode(),
                                         {"Content-Type": "application/json"})
        found, deadline = {}, time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(request) as answer:
                    groups = json.load(answer).get("sessionGroups", [])
                found = {session["name"]: session.get("status", "STATUS_UNKNOWN")
                         for group in groups for session in group["sessions"]}
            except urllib.error.HTTPError:  # nothing has been read yet
                pass
            time.sleep(0.2)
        return found


def main():
    python = sys.argv.pop(1)
    if os.environ.get("KINDLING_RECORDS_PYTHON") == python:
        unittest.main(warnings="ignore")  # of TensorBoard's modules
    if not Path(python).exists() or subprocess.run([python, "-c", "import tensorboard"], stderr=subprocess.DEVNULL).returncode != 0:
        print(f"skipped: {python} cannot import tensorboard")
        sys.exit(77)
    os.environ["KINDLING_RECORDS_PYTHON"] = python
    os.execv(python, [python, "-B", __file__, python, *sys.argv[1:]])


if __name__ == "__main__":
    main()
