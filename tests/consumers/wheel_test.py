"""Installs Kindling with pip into a new virtual environment and uses it there: the program, `python -m kindling`, find_package,
pkg-config. Uninstalling leaves nothing.

  wheel_test.py SOURCE WORK LIBTORCH CXX    exits with 77 if pip cannot install the build backend
"""

import os
import pathlib
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
    result = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=work,
                            **({"env": settings} | options))
    if result.returncode != expect:
        sys.exit(f"{' '.join(map(str, command))}: exit code {result.returncode}, expected {expect}\n{result.stdout}")
    return result.stdout.strip()


def expect_in(text, output):
    if text not in output:
        sys.exit(f"expected {text!r} in the output:\n{output}")


def make_environment():
    """A virtual environment with the torch of LIBTORCH, linked instead of copied."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    run(sys.executable, "-m", "venv", environment)
    site = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
    for entry in [libtorch, *libtorch.parent.glob("torch-*.dist-info")]:
        (site / entry.name).symlink_to(entry)
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
run(python, "-m", "pip", "install", "--quiet", "--no-deps", source)

plain = {name: value for name, value in os.environ.items() if name not in ("LIBTORCH", "LD_LIBRARY_PATH", "PYTHONPATH")}
plain["PATH"] = f"{environment / 'bin'}:{plain['PATH']}"
expect_in("kindling ", run("kindling", "--version", env=plain))
fit = ("fit", "-c", source / "configs/digits_mlp.toml", "trainer.max_epochs=2", "trainer.num_gpus=0")
expect_in("best val acc", run(python, "-m", "kindling", *fit, env=plain))

prefix = run(python, "-c", "import kindling; print(kindling.cmake_prefix_path())")
project = work / "project"
shutil.copytree(source / "tests/consumers/fast_mkl", project)
run("cmake", "-S", project, "-B", project / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release", env=plain)
run("cmake", "--build", project / "build", env=plain)
expect_in("MKL's fast kernels", run(project / "build/fast_mkl", env=plain))

pkg_config = run(python, "-c", "import kindling; print(kindling.pkg_config_path())")
if shutil.which("pkg-config"):
    flags = run("pkg-config", "--cflags", "--libs", "kindling", env=plain | {"PKG_CONFIG_PATH": pkg_config}).split()
    for folder in (flag[2:] for flag in flags if flag[:2] in ("-I", "-L")):
        if not pathlib.Path(folder).is_dir():
            sys.exit(f"kindling.pc names the folder {folder}, which does not exist")

for link in site.glob("torch-*.dist-info"):
    link.unlink()
expect_in("this environment has torch none", run("kindling", "--version", env=plain, expect=1))
run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "kindling")
left = sorted(path for path in files_of(environment) - before if "torch-" not in path)
if left:
    sys.exit(f"uninstalling left {left}")
print("installed, used and uninstalled")
