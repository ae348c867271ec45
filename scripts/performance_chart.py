#!/usr/bin/env python3
"""Draws the results of benchmarks/compare.sh as a bar chart, an SVG.

    scripts/performance_chart.py [--small] RESULTS.jsonl OUT.svg

Each case is a panel with one bar per peer, sorted by time. A bar is the median CPU time of the process in the case's unit; the thin
line spans the smallest and the largest repeat. Where a file has several lines for one measurement, the last one counts.
--small draws the chart of README.md: three cases side by side, with the four peers of SMALL_PEERS.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

# (case, variant, precision) → the panel's title.
PANELS = {
    ("step_tiny", "", "fp32"): "MLP 20-64-64-1, batch 32: a step",
    ("step_deep", "", "fp32"): "MLP of 16 layers of 64, batch 32: a step",
    ("fmnist_epoch", "", "fp32"): "MLP 784-256-10, batch 256: an epoch of 60,000 images",
    ("cnn_mnist", "", "fp32"): "two convolutions, batch 64: an image",
    ("cnn_mnist", "", "bf16"): "two convolutions, batch 64, bfloat16: an image",
    ("data_feed", "", "fp32"): "shuffled batches of 256 images: an image",
    ("optim_only", "adam/small32", "fp32"): "Adam on 32 small tensors: an update",
    ("cold_start", "", "fp32"): "process start to the end of the first step",
}
SMALL_PANELS = {
    ("step_tiny", "", "fp32"): "small MLP: one training step",
    ("cnn_mnist", "", "fp32"): "CNN: one image of an epoch",
    ("fmnist_epoch", "", "fp32"): "MLP on 60,000 images: an epoch",
}
SMALL_PEERS = {"kindling": "Kindling", "bare": "LibTorch loop", "eager_best": "PyTorch, tuned", "lightning": "Lightning"}
NAMES = {
    "kindling": "Kindling", "kindling_mkl": "Kindling, MKL's fast kernels", "kindling_uint8": "Kindling, from bytes",
    "kindling_mkl_uint8": "Kindling, from bytes, MKL's fast kernels", "kindling_eager": "Kindling, step_graph off",
    "lightning": "Lightning", "lightning_plain": "Lightning, barebones", "accelerate": "Accelerate", "ignite": "Ignite",
    "eager": "PyTorch", "eager_best": "PyTorch, tuned", "eager_foreach": "PyTorch, foreach", "eager_w2": "PyTorch, 2 workers",
    "compile": "PyTorch, torch.compile", "bare": "LibTorch", "bare_w2": "LibTorch, 2 workers",
    "bare_normalize": "LibTorch, Normalize", "aoti_step": "AOTInductor, whole step",
}
UNITS = {"us/step": "µs", "us/img": "µs", "us/sample": "µs", "s/epoch": "s", "s": "s"}
ROW = 19


@dataclass(frozen=True)
class Form:
    panels: dict   # (case, variant, precision) → title
    names: dict    # peer → label
    columns: int   # panels side by side
    width: int     # of a panel; of its labels and its longest bar
    label: int
    bar: int
    only_named: bool = False  # skips peers without a label


FULL = Form(PANELS, NAMES, columns=2, width=510, label=190, bar=180)
SMALL = Form(SMALL_PANELS, SMALL_PEERS, columns=3, width=285, label=94, bar=72, only_named=True)
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #343a40 } .title { font-weight: 600 } .end { text-anchor: end }
  .bar { fill: #adb5bd } .ours { fill: #e8590c } .spread { stroke: #343a40; stroke-width: 1 }
  @media (prefers-color-scheme: dark) { text { fill: #dee2e6 } .bar { fill: #5c636a } .spread { stroke: #dee2e6 } }
"""


def measured(lines, form=FULL):
    """Returns {panel: {peer: line}} of the CPU times."""
    panels = {}
    for line in lines:
        key = (line["case"], line["variant"], line["precision"])
        if line["metric"] == "cpu" and key in form.panels and (line["peer"] in form.names or not form.only_named):
            panels.setdefault(key, {})[line["peer"]] = line
    return {key: panels[key] for key in form.panels if any(peer.startswith("kindling") for peer in panels.get(key, {}))}


def number(value):
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def factor(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def bar(line, y, scale, reference, form):
    ours = line["peer"].startswith("kindling")
    left, unit = form.label + 8, UNITS[line["unit"]]
    low, high = (left + line[end] * scale for end in ("min", "max"))
    ratio = "" if line is reference else f" · {factor(line['median'] / reference['median'])}×"
    return [
        f'<text class="end" x="{form.label}" y="{y + 12}">{escape(form.names.get(line["peer"], line["peer"]))}</text>',
        f'<rect class="bar{" ours" if ours else ""}" x="{left}" y="{y + 2}" width="{line["median"] * scale:.1f}" height="13"/>',
        f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{y + 8.5}" y2="{y + 8.5}"/>',
        f'<text x="{max(high, left + line["median"] * scale) + 6:.1f}" y="{y + 12}">{number(line["median"])} {unit}{ratio}</text>',
    ]


def panel(key, peers, form):
    """Returns height and elements. Factors relate to the peer `kindling`, which uses the same MKL kernels as the others."""
    rows = sorted(peers.values(), key=lambda line: line["median"])
    reference = peers.get("kindling") or next(line for line in rows if line["peer"].startswith("kindling"))
    scale = form.bar / max(line["max"] for line in rows)
    elements = [f'<text class="title" x="0" y="14">{escape(form.panels[key])}</text>']
    for i, line in enumerate(rows):
        elements += bar(line, 22 + i * ROW, scale, reference, form)
    return 22 + len(rows) * ROW + 20, elements


def caption(line, form):
    text = (f"CPU time, {line['threads']} thread, medians of {line['repeats']}; shorter is better; "
            f"{{}}{line['cpu_model']}, LibTorch {line['torch'].split('+')[0]}")
    return text.format("factors relate to Kindling; " if form is SMALL else "factors relate to the bar `Kindling`. ")


def svg(lines, source, form=FULL):
    panels = [panel(key, peers, form) for key, peers in measured(lines, form).items()]
    title = caption(next(line for line in lines if line["metric"] == "cpu"), form)
    body, y = [], 30
    for start in range(0, len(panels), form.columns):
        row = panels[start:start + form.columns]
        for column, (_, elements) in enumerate(row):
            body += [f'<g transform="translate({column * form.width + 10} {y})">', *elements, "</g>"]
        y += max(height for height, _ in row)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {form.columns * form.width} {y}" role="img">',
        f"<!-- made by scripts/performance_chart.py of {source} -->",
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text x="10" y="16">{escape(title)}</text>', *body, "</svg>", ""])


def main(results, out, form=FULL):
    lines = [json.loads(line) for line in Path(results).read_text().splitlines() if line.startswith("{")]
    Path(out).write_text(svg(lines, Path(results).name, form))


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--small"]
    if len(arguments) != 2:
        sys.exit(__doc__)
    main(*arguments, form=SMALL if "--small" in sys.argv else FULL)
