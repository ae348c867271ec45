"""Installs Kindling with pip into a new virtual environment and uses it there, with the commands of docs/start/install_more.md as printed:
the program, `python -m kindling`, find_package, pkg-config. Uninstalling leaves nothing.

  wheel_test.py SOURCE WORK LIBTORCH CXX    exits with 77 if pip cannot install the build backend
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

source, work, libtorch = map(pathlib.Path, sys.argv[1:4])
cxx = sys.argv[4]
environment = work / "venv"
python = environment / "bin/python"
# ccache then finds the objects of the test build.
settings = os.environ | {"LIBTORCH": str(libtorch), "CCACHE_BASEDIR": str(source), "CCACHE_NOHASHDIR": "1", "CXX": cxx,
                         "CMAKE_GENERATOR": "Ninja"}
settings.pop("PYTHONPATH", None)


def run(*command, expect=0, **options):
    result = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            **({"cwd": work, "env": settings} | options))
    if result.returncode != expect:
        sys.exit(f"{' '.join(map(str, command))}: exit code {result.returncode}, expected {expect}\n{result.stdout}")
    return result.stdout.strip()


def expect_in(text, output):
    if text not in output:
        sys.exit(f"expected {text!r} in the output:\n{output}")


def make_environment():
    """A virtual environment with the torch of LIBTORCH, linked instead of copied, and without the packages that its Python part needs."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    run(sys.executable, "-m", "venv", environment)
    site = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
    (site / "torch").symlink_to(libtorch)
    for entry in libtorch.parent.glob("torch-*.dist-info"):
        (site / entry.name).mkdir()
        metadata = (entry / "METADATA").read_text()
        (site / entry.name / "METADATA").write_text(re.sub(r"^Requires-Dist: .*\n", "", metadata, flags=re.MULTILINE))
    return site


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


if libtorch.name != "torch" or not list(libtorch.parent.glob("torch-*.dist-info")):
    skip(f"{libtorch} is not the package torch of a Python environment")
if subprocess.run([sys.executable, "-c", "import ensurepip, venv"], capture_output=True).returncode != 0:
    skip("this Python cannot make virtual environments")
site = make_environment()
before = files_of(environment)
if subprocess.run([python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work / "backend", "scikit-build-core"],
                  capture_output=True).returncode != 0:
    skip("pip cannot install scikit-build-core here")
page = re.findall(r"^```sh\n(.*?)^```$", (source / "docs/start/install_more.md").read_text(), re.MULTILINE | re.DOTALL)
install, use = ([block for block in page if text in block][0] for text in ("pip install .", "python -m kindling"))
path = f"{environment / 'bin'}:{os.environ['PATH']}"
run("bash", "-euo", "pipefail", "-c", install, cwd=source, env=settings | {"PATH": path})

plain = {name: value for name, value in os.environ.items() if name not in ("LIBTORCH", "LD_LIBRARY_PATH", "PYTHONPATH")}
plain["PATH"] = path
expect_in("kindling ", run("kindling", "--version", env=plain))
run(python, "-c", "import kindling; assert callable(kindling.export)", env=plain)
run(python, "-c", "import kindling; kindling.Trainer('model.name = \"linear_regression\"')", env=plain)
project = work / "project"
shutil.copytree(source / "tests/consumers/fast_mkl", project)
shutil.copytree(source / "configs", project / "configs")
if not shutil.which("pkg-config"):
    use = re.sub(r"^pkg-config .*\n", "", use, flags=re.MULTILINE)
expect_in("best val acc", run("bash", "-euo", "pipefail", "-c", use, cwd=project, env=plain | {"CMAKE_GENERATOR": "Ninja"}))
run("cmake", "--build", project / "build", env=plain)
expect_in("MKL's fast kernels", run(project / "build/fast_mkl", env=plain))

pkg_config = run(python, "-c", "import kindling; print(kindling.pkg_config_path())")
if shutil.which("pkg-config"):
    flags = run("pkg-config", "--cflags", "--libs", "kindling", env=plain | {"PKG_CONFIG_PATH": pkg_config}).split()
    program = work / "program.cpp"
    program.write_text("""#include <kindling/models/mlp.h>
#include <iostream>
int main() { std::cout << kindling::Mlp(kindling::MlpOptions{.hidden = {8}}).parameters().size() << " parameters, the layers are lazy"; }
""")
    run(cxx, program, "-o", work / "program", *flags, env=plain)
    expect_in("0 parameters, the layers are lazy", run(work / "program", env=plain))

for metadata in site.glob("torch-*.dist-info"):
    other = re.sub("^Version: .*", "Version: 2.99.0", (metadata / "METADATA").read_text(), flags=re.MULTILINE)
    (metadata / "METADATA").write_text(other)
    expect_in("this environment has torch 2.99.0", run("kindling", "--version", env=plain, expect=1))
    shutil.rmtree(metadata)
expect_in("this environment has torch none", run("kindling", "--version", env=plain, expect=1))
run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "kindling")
left = sorted(path for path in files_of(environment) - before if "torch-" not in path)
if left:
    sys.exit(f"uninstalling left {left}")
print("installed, used and uninstalled")
