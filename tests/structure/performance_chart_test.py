"""docs/explain/performance.svg shows what has been measured."""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "scripts" / "performance_chart.py"


def drawn(results):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "chart.svg"
        subprocess.run([sys.executable, "-B", SCRIPT, results, out], check=True)
        return out.read_text()


def line(peer, median, **changed):
    return {"case": "step_tiny", "variant": "", "peer": peer, "threads": 1, "precision": "fp32", "metric": "cpu", "unit": "us/step",
            "median": median, "min": median, "max": median, "repeats": 11, "final_loss": 0.1, "torch": "2.13.0+cpu", "cpu_model": "a CPU",
            **changed}


class Chart(unittest.TestCase):
    def test_of_the_docs_is_that_of_committed_results(self):
        chart = (REPOSITORY / "docs/explain/performance.svg").read_text()
        source = re.search(r"made by scripts/performance_chart.py of (\S+) -->", chart).group(1)
        self.assertEqual(chart, drawn(REPOSITORY / "benchmarks" / "results" / source))

    def test_sorts_the_peers_and_gives_factors_to_kindling(self):
        lines = [line("eager", 300.0), line("kindling_mkl", 50.0), line("kindling", 100.0),
                 line("eager", 1.0, metric="wall"), line("eager", 7.0, case="nobody_knows")]
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results.jsonl"
            results.write_text("".join(json.dumps(each) + "\n" for each in lines))
            chart = drawn(results)
        self.assertEqual(re.findall(r">([^<>]+ µs[^<>]*)<", chart), ["50 µs · 0.50×", "100 µs", "300 µs · 3.00×"])
        self.assertEqual(len(re.findall(r'class="bar ours"', chart)), 2)
        widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', chart)]
        self.assertEqual([width / widths[0] for width in widths], [1, 2, 6])


if __name__ == "__main__":
    unittest.main()
