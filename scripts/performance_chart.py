#!/usr/bin/env python3
"""Draws what benchmarks/compare.sh has measured as bars, an SVG.

    scripts/performance_chart.py RESULTS.jsonl OUT.svg

One panel per case, one bar per peer, sorted: CPU time of the process in the case's unit, median; the thin line goes from the least to
the largest repeat. Where a file holds several lines for one measurement, the last one counts.
"""

import json
import sys
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
NAMES = {
    "kindling": "Kindling", "kindling_mkl": "Kindling, MKL's fast kernels", "kindling_uint8": "Kindling, from bytes",
    "kindling_mkl_uint8": "Kindling, from bytes, MKL's fast kernels", "kindling_eager": "Kindling, no step graph",
    "lightning": "Lightning", "lightning_plain": "Lightning, barebones", "accelerate": "Accelerate", "ignite": "Ignite",
    "eager": "PyTorch", "eager_best": "PyTorch, tuned", "eager_foreach": "PyTorch, foreach", "eager_w2": "PyTorch, 2 workers",
    "compile": "PyTorch, torch.compile", "bare": "LibTorch", "bare_w2": "LibTorch, 2 workers",
    "bare_normalize": "LibTorch, Normalize", "aoti_step": "AOTInductor, whole step",
}
UNITS = {"us/step": "µs", "us/img": "µs", "us/sample": "µs", "s/epoch": "s", "s": "s"}
COLUMNS, WIDTH, ROW, LABEL, BAR = 2, 510, 19, 190, 180
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #343a40 } .title { font-weight: 600 } .end { text-anchor: end }
  .bar { fill: #adb5bd } .ours { fill: #e8590c } .spread { stroke: #343a40; stroke-width: 1 }
  @media (prefers-color-scheme: dark) { text { fill: #dee2e6 } .bar { fill: #5c636a } .spread { stroke: #dee2e6 } }
"""


def measured(lines):
    """{panel: {peer: line}} of the CPU times."""
    panels = {}
    for line in lines:
        key = (line["case"], line["variant"], line["precision"])
        if line["metric"] == "cpu" and key in PANELS:
            panels.setdefault(key, {})[line["peer"]] = line
    return {key: panels[key] for key in PANELS if any(peer.startswith("kindling") for peer in panels.get(key, {}))}


def number(value):
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def bar(line, y, scale, reference):
    ours = line["peer"].startswith("kindling")
    left, unit = LABEL + 8, UNITS[line["unit"]]
    low, high = (left + line[end] * scale for end in ("min", "max"))
    ratio = "" if line is reference else f" · {line['median'] / reference['median']:.2f}×"
    return [
        f'<text class="end" x="{LABEL}" y="{y + 12}">{escape(NAMES.get(line["peer"], line["peer"]))}</text>',
        f'<rect class="bar{" ours" if ours else ""}" x="{left}" y="{y + 2}" width="{line["median"] * scale:.1f}" height="13"/>',
        f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{y + 8.5}" y2="{y + 8.5}"/>',
        f'<text x="{max(high, left + line["median"] * scale) + 6:.1f}" y="{y + 12}">{number(line["median"])} {unit}{ratio}</text>',
    ]


def panel(key, peers):
    """Height and elements; factors are to the time of the peer `kindling`, which has no switch that others lack."""
    rows = sorted(peers.values(), key=lambda line: line["median"])
    reference = peers.get("kindling") or next(line for line in rows if line["peer"].startswith("kindling"))
    scale = BAR / max(line["max"] for line in rows)
    elements = [f'<text class="title" x="0" y="14">{escape(PANELS[key])}</text>']
    for i, line in enumerate(rows):
        elements += bar(line, 22 + i * ROW, scale, reference)
    return 22 + len(rows) * ROW + 20, elements


def svg(lines, source):
    panels = [panel(key, peers) for key, peers in measured(lines).items()]
    first = next(line for line in lines if line["metric"] == "cpu")
    body, y = [], 30
    for start in range(0, len(panels), COLUMNS):
        row = panels[start:start + COLUMNS]
        for column, (_, elements) in enumerate(row):
            body += [f'<g transform="translate({column * WIDTH + 10} {y})">', *elements, "</g>"]
        y += max(height for height, _ in row)
    caption = (f"CPU time, {first['threads']} thread, medians of {first['repeats']}; shorter is better; factors are to the bar "
               f"`Kindling`. {first['cpu_model']}, LibTorch {first['torch'].split('+')[0]}")
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * WIDTH} {y}" role="img">',
        f"<!-- made by scripts/performance_chart.py of {source} -->",
        f"<title>{escape(caption)}</title><style>{STYLE}</style>",
        f'<text x="10" y="16">{escape(caption)}</text>', *body, "</svg>", ""])


def main(results, out):
    lines = [json.loads(line) for line in Path(results).read_text().splitlines() if line.startswith("{")]
    Path(out).write_text(svg(lines, Path(results).name))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
