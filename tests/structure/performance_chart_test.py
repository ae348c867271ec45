"""The charts and tables in docs/explain show the committed results."""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "scripts" / "performance_chart.py"
TABLE_SCRIPT = REPOSITORY / "scripts" / "performance_table.py"


def drawn(results, *options):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "chart.svg"
        subprocess.run([sys.executable, "-B", SCRIPT, *options, results, out], check=True)
        return out.read_text()


def drawn_lines(lines, *options):
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.jsonl"
        results.write_text("".join(json.dumps(each) + "\n" for each in lines))
        return drawn(results, *options)


def line(peer, median, **changed):
    return {"case": "step_tiny", "variant": "", "peer": peer, "threads": 1, "precision": "fp32", "metric": "cpu", "unit": "us/step",
            "median": median, "min": median, "max": median, "repeats": 11, "final_loss": 0.1, "torch": "2.13.0+cpu", "cpu_model": "a CPU",
            **changed}


class Chart(unittest.TestCase):
    def check_committed(self, name, *options):
        chart = (REPOSITORY / "docs/explain" / name).read_text()
        source = re.search(r"made by scripts/performance_chart.py of (\S+) -->", chart).group(1)
        self.assertEqual(chart, drawn(REPOSITORY / "benchmarks" / "results" / source, *options))
        return chart

    def test_full_chart_shows_committed_results(self):
        self.check_committed("performance.svg")

    def test_small_chart_shows_committed_results_of_three_cases_and_four_peers(self):
        chart = self.check_committed("performance_small.svg", "--small")
        self.assertEqual(chart.count('class="title"'), 3)
        self.assertEqual(chart.count("<rect "), 12)

    def test_readme_quotes_the_small_chart(self):
        readme = (REPOSITORY / "README.md").read_text()
        chart = (REPOSITORY / "docs/explain/performance_small.svg").read_text()
        self.assertIn("performance_small.svg", "\n".join(readme.splitlines()[:32]))
        for quoted in re.findall(r"(?<![\d.])(\d+(?:\.\d+)?) times", "\n".join(readme.splitlines()[:32])):
            self.assertRegex(chart, rf"· {re.escape(quoted)}\d?×")

    def test_small_chart_skips_other_peers(self):
        chart = drawn_lines([line("eager_best", 300.0), line("kindling_mkl", 50.0), line("kindling", 100.0)], "--small")
        self.assertEqual(re.findall(r">([^<>]+ µs[^<>]*)<", chart), ["100 µs", "300 µs · 3.00×"])

    def test_sorts_the_peers_and_relates_factors_to_kindling(self):
        chart = drawn_lines([line("eager", 300.0), line("kindling_mkl", 50.0), line("kindling", 100.0), line("lightning", 1200.0),
                             line("eager", 1.0, metric="wall"), line("eager", 7.0, case="unknown")])
        self.assertEqual(re.findall(r">([^<>]+ µs[^<>]*)<", chart), 
                         ["50 µs · 0.50×", "100 µs", "300 µs · 3.00×", "1,200 µs · 12.0×"])
        self.assertEqual(len(re.findall(r'class="bar ours"', chart)), 2)
        widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', chart)]
        self.assertEqual([width / widths[0] for width in widths], [1, 2, 6, 24])


class Tables(unittest.TestCase):
    def printed_rows(self, results):
        command = [sys.executable, "-B", TABLE_SCRIPT, results]
        return [row for row in subprocess.check_output(command, text=True).splitlines() if row.startswith("| ")]

    def test_page_shows_committed_results(self):
        page = (REPOSITORY / "docs/explain/performance.md").read_text()
        for kind, num_rows in (("cpu", 12), ("mkl_for_all_cpu", 4)):
            source = re.search(rf"benchmarks/results/({kind}_[\d-]+\.jsonl)", page).group(1)
            rows = self.printed_rows(REPOSITORY / "benchmarks" / "results" / source)
            self.assertEqual(len(rows), 1 + num_rows)
            for row in rows:
                self.assertIn(row, page.splitlines())

    def test_kindling_mkl_takes_the_place_of_kindling(self):
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results.jsonl"
            measured = [line(peer, median, case="fmnist_epoch", unit="s/epoch")
                        for peer, median in (("kindling_mkl", 0.25), ("bare", 0.5))]
            results.write_text("".join(json.dumps(each) + "\n" for each in measured))
            self.assertEqual(self.printed_rows(results)[1:], ["| `fmnist_epoch`, ms | 250 (250 … 250) |  |  |  |  | 2.00 |"])


if __name__ == "__main__":
    unittest.main()
