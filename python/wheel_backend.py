"""The build backend of the wheel: scikit-build-core with the LibTorch of the environment that Kindling is installed into.

pip builds in an environment of its own, in which the torch of the caller's environment cannot be imported. A wheel works with one minor
version of LibTorch only, so the backend looks for that torch itself: the environment variable LIBTORCH, then the site-packages of the
interpreter. If there is none, pip installs the newest torch for the build, and the wheel requires its minor version.
"""

import importlib.util
import os
import pathlib
import re
import sysconfig

from scikit_build_core import build as _scikit_build
from scikit_build_core.build import build_sdist, get_requires_for_build_sdist  # noqa: F401 (part of the interface)


def _libtorch():
    """The folder of LibTorch, or None."""
    candidates = [os.environ.get("LIBTORCH"), *(f"{sysconfig.get_path(kind)}/torch" for kind in ("purelib", "platlib"))]
    spec = importlib.util.find_spec("torch")
    candidates += list(spec.submodule_search_locations or []) if spec else []
    return next((pathlib.Path(path) for path in candidates if path and _is_libtorch(path)), None)


def _is_libtorch(folder):
    return (pathlib.Path(folder) / "lib/libtorch_cpu.so").exists()


def _minor_version(libtorch):
    headers = ("include/torch/headeronly/version.h", "include/torch/csrc/api/include/torch/version.h")
    text = next(path.read_text() for path in map(libtorch.joinpath, headers) if path.exists())
    return ".".join(re.search(rf"define TORCH_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR"))


def dynamic_metadata(field, settings, project=None):
    """The version, such as 0.1.0+torch2.13, and the dependency, such as torch==2.13.*."""
    libtorch = _libtorch()
    if libtorch is None:
        raise RuntimeError("LibTorch was not found: install torch into this environment, or let LIBTORCH name its folder")
    minor = _minor_version(libtorch)
    if field == "dependencies":
        return [f"torch=={minor}.*"]
    lists = pathlib.Path(__file__).parent.parent / "CMakeLists.txt"
    version = re.search(r"^project\(kindling VERSION ([\d.]+)", lists.read_text(), re.MULTILINE)[1]
    return f"{version}+torch{minor}"


def _with_libtorch(config_settings):
    libtorch = _libtorch()
    found = {} if libtorch is None else {"cmake.define.LIBTORCH": str(libtorch)}
    return found | (config_settings or {})


def get_requires_for_build_wheel(config_settings=None):
    requires = _scikit_build.get_requires_for_build_wheel(config_settings)
    return requires if _libtorch() else [*requires, "torch"]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _scikit_build.build_wheel(wheel_directory, _with_libtorch(config_settings), metadata_directory)
