"""Kindling in a Python environment: where its CMake package, its headers and its program are, export(), and Trainer.

The framework itself is C++. Trainer calls its C interface, for arrays in the same process.
"""

import importlib.metadata
import pathlib

from kindling._built_with import LIBTORCH_MINOR
from kindling._export import export  # noqa: F401

_PREFIX = pathlib.Path(__file__).parent


def cmake_prefix_path():
    """The folder for CMAKE_PREFIX_PATH, under which find_package(kindling) finds the library."""
    return str(_PREFIX)


def pkg_config_path():
    """The folder for PKG_CONFIG_PATH, which has kindling.pc."""
    return str(_PREFIX / "lib/pkgconfig")


def require_torch():
    """Raises RuntimeError if torch is missing or of another minor version than at build time."""
    try:
        found = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        found = "none"
    if not found.startswith(LIBTORCH_MINOR + "."):
        raise RuntimeError(f"this Kindling was built with torch {LIBTORCH_MINOR}, but this environment has torch {found}: run "
                           f"`pip install 'torch=={LIBTORCH_MINOR}.*'`, or install Kindling again from its sources")


def program():
    """The path of the program. Raises RuntimeError as require_torch() does."""
    require_torch()
    return str(_PREFIX / "bin/kindling")


from kindling._trainer import Error, Tensor, Trainer  # noqa: E402, F401 (it needs the functions above)
