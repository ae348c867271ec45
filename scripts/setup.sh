#!/usr/bin/env bash
# Set-up that the scripts share: system packages, LibTorch, a configured build folder.
#
# Sourced by the other scripts. Run by itself, `scripts/setup.sh [PRESET]` makes build/PRESET (dev) ready
# for `cmake --build --preset PRESET`.
#
# From the environment: LIBTORCH or Torch_DIR (which LibTorch), KINDLING_TORCH_INDEX (where pip looks for it), CXX,
# CMAKE_BUILD_PARALLEL_LEVEL (compilers at once).
set -euo pipefail

kindling_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly kindling_root
readonly deps=$kindling_root/.deps
readonly torch_version=2.13.0
# Newest first. check_libtorch_versions.sh tests all; test.sh uses the first that pip can install.
readonly newest_torch_versions=(2.15.0 2.14.1)
readonly docs_venv=$deps/venv-docs mkdocs_version=1.6.1 pygments_version=2.21.0
# The version of Debian 12; others write some lines in another way.
readonly clang_format_version=14.0.6

readonly library_packages=(libspdlog-dev libtomlplusplus-dev libcli11-dev nlohmann-json3-dev zlib1g-dev libxxhash-dev libutf8proc-dev
  libpng-dev libjpeg-dev)
# libwebp, libtiff, libdeflate, HDF5 and NetCDF are optional, clang builds the consumer tests a second time, gfortran the module for Fortran, iproute2 makes two
# machines of one
readonly test_packages=(libgtest-dev libwebp-dev libtiff-dev libdeflate-dev libhdf5-dev libnetcdf-dev doxygen clang gfortran iproute2 python3-venv pkg-config)
# Launchers of ranks, whose test needs root.
readonly launcher_packages=(openmpi-bin libopenmpi-dev mpich libmpich-dev slurm-wlm munge)

# Paths below the repository count relative to it, so that ccache knows a file again in another clone or build folder.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$kindling_root} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}

say() { printf 'kindling: %s\n' "$*" >&2; }

stop() {
  say "$*"
  exit 1
}

# run_logged NAME COMMAND...: the command's output goes to .deps/NAME.log.
run_logged() {
  mkdir -p "$deps"
  "${@:2}" >>"$deps/$1.log" 2>&1
}

# Prints the folder that contains data/mnist-10k: KINDLING_SHARED, else the repository, else a folder next to it that several
# clones can use.
data_root() {
  if [ -n "${KINDLING_SHARED:-}" ]; then
    realpath -m "$KINDLING_SHARED"
  elif [ ! -e "$kindling_root/data/mnist-10k" ] && [ -e "$kindling_root/../shared/data/mnist-10k" ]; then
    realpath "$kindling_root/../shared"
  else
    echo "$kindling_root"
  fi
}

# --- System packages -------------------------------------------------------------------------------------------------

missing_packages() {
  local installed package
  installed=$(dpkg-query -W -f='${db:Status-Status}:${Package}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    [[ $'\n'$installed$'\n' == *$'\n'"installed:$package"$'\n'* ]] || echo "$package"
  done
}

# The packages of the build tools that no command on the PATH stands for.
missing_tools() {
  local tool
  for tool in g++:g++ cmake:cmake ninja:ninja-build ccache:ccache python3:python3; do
    if [ "$tool" = g++:g++ ] && [ -n "${CXX:-}" ]; then continue; fi
    command -v "${tool%%:*}" >/dev/null || echo "${tool#*:}"
  done
}

install_packages() {
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      stop "missing packages, and neither root nor sudo to install them; ask for: apt-get install $*"
    as_root=(sudo)
    # Without a terminal nobody can type the password.
    if [ ! -t 0 ]; then as_root+=(-n); fi
  fi
  say "installing with apt-get: $*"
  # A list that cannot be fetched matters only when a package is then not found.
  run_logged apt "${as_root[@]}" apt-get -q update || true
  run_logged apt "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
    -o DPkg::Lock::Timeout=120 install "$@" || {
    tail -n 5 "$deps/apt.log" >&2
    stop "apt-get could not install $* (all it said is in $deps/apt.log)"
  }
}

# need_packages PACKAGE...: installs those that are missing; without dpkg it can only say what is needed.
need_packages() {
  local missing
  if ! command -v dpkg-query >/dev/null; then
    say "this is neither Debian nor Ubuntu, so nothing is installed; needed are the equivalents of these packages: $*"
    return
  fi
  mapfile -t missing < <(missing_packages "$@")
  if [ "${#missing[@]}" -gt 0 ]; then install_packages "${missing[@]}"; fi
}

can_become_root() {
  [ "$(id -u)" -eq 0 ] || { command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; }
}

# need_build_packages [PACKAGE...]: tools, libraries and the packages named. A user without root does without ccache, and CMake
# fetches the libraries; tests, which come with packages of their own, need them installed.
need_build_packages() {
  local tools libraries=("${library_packages[@]}")
  mapfile -t tools < <(missing_tools)
  if ! can_become_root && [ $# -eq 0 ]; then
    libraries=()
    mapfile -t tools < <(printf '%s\n' "${tools[@]}" | grep -vE '^(ccache|)$')
  fi
  if [ $((${#tools[@]} + ${#libraries[@]} + $#)) -gt 0 ]; then need_packages "${tools[@]}" "${libraries[@]}" "$@"; fi
}

check_tool_versions() {
  local cmake gcc
  cmake=$(cmake --version | sed -n 's/^cmake version \([0-9]*\.[0-9]*\).*/\1/p')
  [ "${cmake%%.*}" -gt 3 ] || [ "${cmake#*.}" -ge 25 ] ||
    stop "CMake $cmake is too old, 3.25 is needed: Debian 12 and Ubuntu 24.04 have it, pip installs it too"
  [ -z "${CXX:-}" ] || return 0
  gcc=$(g++ -dumpversion)
  [ "${gcc%%.*}" -ge 12 ] || stop "g++ $gcc is too old, 12 is needed; CXX names another compiler"
}

# --- LibTorch --------------------------------------------------------------------------------------------------------

libtorch_version() {
  local header
  for header in "$1/include/torch/headeronly/version.h" "$1/include/torch/csrc/api/include/torch/version.h"; do
    if [ -e "$header" ]; then
      sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\)$/\2/p' "$header" | paste -sd .
      return
    fi
  done
}

# CMake warns of a version newer than the tested ones.
is_supported() { [[ $1 =~ ^(2\.(1[1-9]|[2-9][0-9])|[3-9]|[1-9][0-9]+)\. ]]; }

# The folder of the `torch` that the Python on the PATH would import, if any.
python_torch() {
  local python
  for python in python3 python; do
    if command -v "$python" >/dev/null; then
      "$python" -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')" \
        2>/dev/null || true
      return
    fi
  done
}

# A Python that can make a virtual environment; Debian keeps that in a package of its own.
python_with_venv() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  need_packages python3-venv
  echo /usr/bin/python3
}

# pip_install_into VENV LOG PACKAGE...: from the index that the user names, if any.
pip_install_into() {
  local index=()
  if [ -n "${KINDLING_TORCH_INDEX:-}" ]; then index=(--index-url "$KINDLING_TORCH_INDEX"); fi
  run_logged "$2" "$1/bin/python" -m pip install --quiet --progress-bar off --no-input --no-compile \
    --disable-pip-version-check --retries 2 "${index[@]}" "${@:3}"
}

pip_install() { pip_install_into "$deps/venv" pip "$@"; }

install_libtorch() {
  local python installed=$deps/venv/torch-$torch_version.installed
  if [ ! -e "$installed" ]; then
    python=$(python_with_venv)
    say "installing LibTorch: torch==$torch_version with pip into $deps/venv (1 GB on disk; a CUDA build: several)"
    run_logged pip "$python" -m venv --clear "$deps/venv" ||
      stop "$python could not make a virtual environment in $deps/venv (all it said is in $deps/pip.log)"
    # An exact CPU file first: where an index offers both, pip alone would take CUDA's. Its C++ part needs no other package.
    pip_install --no-deps "torch==$torch_version+cpu" || pip_install "torch==$torch_version" || {
      tail -n 3 "$deps/pip.log" >&2
      stop "pip could not install torch==$torch_version (all it said is in $deps/pip.log); KINDLING_TORCH_INDEX names" \
        "another package index, LIBTORCH an unpacked LibTorch"
    }
    touch "$installed"
  fi
  LIBTORCH=$("$deps/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib") + "/torch")')
}

# install_libtorch_version VERSION: installs it into .deps/libtorch-VERSION and sets LIBTORCH; fails if pip cannot. Of a CUDA package,
# only what its CPU part needs at run time is installed with it (libcudart and libcupti), so it needs neither a GPU nor a toolkit.
install_libtorch_version() {
  local folder=$deps/libtorch-$1 site cuda
  if [ ! -e "$folder/installed" ]; then
    say "installing torch==$1 with pip into $folder (1 to 1.5 GB on disk)"
    run_logged versions "$(python_with_venv)" -m venv --clear "$folder" || return
    pip_install_into "$folder" versions --no-deps "torch==$1" || return
    site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') || return
    # Such as `Requires-Dist: cuda-toolkit[cublas,cudart,…]==13.0.2; …`
    cuda=$(sed -n 's/^Requires-Dist: cuda-toolkit\[.*\]==\([0-9.]*\).*/\1/p' "$site"/torch-*.dist-info/METADATA) || return
    if [ -n "$cuda" ]; then
      pip_install_into "$folder" versions "cuda-toolkit[cudart,cupti]==$cuda" || return
    fi
    run_logged versions "$folder/bin/python" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$site/torch/lib/libtorch_cpu.so" || return
    touch "$folder/installed"
  fi
  site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') || return
  LIBTORCH=$site/torch
}

# Sets LIBTORCH to the newest of newest_torch_versions that pip can install; fails without changing it if there is none.
use_newest_libtorch() {
  local version
  for version in "${newest_torch_versions[@]}"; do
    if install_libtorch_version "$version"; then return; fi
    say "LibTorch $version could not be installed (all pip said is in $deps/versions.log)"
  done
  return 1
}

# For tests that compare files and numbers with PyTorch's: what the Python part of the pinned torch needs; without it they are skipped.
install_torch_for_python() {
  [ -x "$deps/venv/bin/python" ] || return 0
  if "$deps/venv/bin/python" -c 'import torch, numpy, safetensors, xxhash, h5py' 2>/dev/null; then return 0; fi
  say "installing what torch needs in Python with pip into $deps/venv, for tests"
  pip_install "torch==$torch_version" numpy safetensors xxhash h5py ||
    say "pip could not install it (all it said is in $deps/pip.log): tests that need PyTorch in Python will be skipped"
}

# For the test that reads event files with TensorBoard's own reader; without it, it is skipped.
install_tensorboard() {
  [ -x "$deps/venv/bin/python" ] || return 0
  if "$deps/venv/bin/python" -c 'import tensorboard' 2>/dev/null; then return 0; fi
  say "installing TensorBoard with pip into $deps/venv, for tests"
  pip_install tensorboard || say "pip could not install it (all it said is in $deps/pip.log): its test will be skipped"
}

# For tests that hold ONNX files against PyTorch, in a folder of their own beside the pinned torch; without it they are skipped.
install_onnx() {
  local python=$deps/venv/bin/python installed=$deps/onnx/onnx.installed
  if [ -e "$installed" ]; then return 0; fi
  [ -x "$python" ] || python=python3
  "$python" -c 'import torch' 2>/dev/null || return 0  # nothing to hold against
  say "installing onnx and onnxruntime with pip into $deps/onnx, for tests"
  rm -rf "$deps/onnx"
  if run_logged pip "$python" -m pip install --quiet --progress-bar off --no-input --no-compile --disable-pip-version-check \
    --retries 2 --target "$deps/onnx" onnx onnxruntime numpy; then
    touch "$installed"
  else
    say "pip could not install them (all it said is in $deps/pip.log): the tests of ONNX files will be skipped"
  fi
}

# Installs what builds the site of the documentation; fails if pip cannot.
install_mkdocs() {
  local versions
  versions=$("$docs_venv/bin/python" -c 'import mkdocs, pygments; print(mkdocs.__version__, pygments.__version__)' 2>/dev/null) || true
  if [ "$versions" = "$mkdocs_version $pygments_version" ]; then return 0; fi
  say "installing MkDocs $mkdocs_version with pip into $docs_venv, for the site of the documentation"
  run_logged pip-docs "$(python_with_venv)" -m venv --clear "$docs_venv" &&
    run_logged pip-docs "$docs_venv/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --retries 2 \
      "mkdocs==$mkdocs_version" "pygments==$pygments_version"
}

# Installs the clang-format that tests/structure/formatting_test.py uses, as .deps/clang-format/bin/clang-format; fails if pip cannot.
install_clang_format() {
  local folder=$deps/clang-format installed=$deps/clang-format/$clang_format_version.installed
  if [ -e "$installed" ]; then return 0; fi
  say "installing clang-format $clang_format_version with pip into $folder"
  rm -rf "$folder"
  run_logged pip-format "$(python_with_venv)" -m venv "$folder" &&
    run_logged pip-format "$folder/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --retries 2 \
      "clang-format==$clang_format_version" &&
    touch "$installed"
}

# Sets LIBTORCH to the folder of a LibTorch 2.11 or newer: the one the user names, the one of the user's Python, our own.
find_libtorch() {
  local found version
  found=${LIBTORCH:-${Torch_DIR:+$Torch_DIR/../../..}}
  if [ -n "$found" ]; then
    [ -e "$found/lib/libtorch_cpu.so" ] ||
      stop "LIBTORCH or Torch_DIR leads to $found, which has no lib/libtorch_cpu.so"
    version=$(libtorch_version "$found")
    is_supported "$version" || stop "LIBTORCH or Torch_DIR names LibTorch ${version:-of unknown version}, expected 2.11 or newer"
    LIBTORCH=$(cd "$found" && pwd)
  else
    found=$(python_torch)
    version=$(libtorch_version "$found")
    if is_supported "$version" && [ -e "$found/lib/libtorch_cpu.so" ]; then
      LIBTORCH=$found
    else
      if [ -n "$found" ]; then
        say "the torch of this Python is ${version:-of unknown version}, expected 2.11 or newer, so it is not used"
      fi
      install_libtorch
    fi
  fi
  export LIBTORCH
}

# --- Build folders ---------------------------------------------------------------------------------------------------

# A compiler takes up to 2.3 GB here: not more of them than fit into memory.
limit_jobs() {
  local fit cores
  cores=$(nproc)
  fit=$(awk '/^MemAvailable:/ { print int($2 / 2300000) }' /proc/meminfo)
  if [ "$fit" -lt 1 ]; then fit=1; fi
  export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$((fit < cores ? fit : cores))}
}

# is_configured PRESET NAME:TYPE=VALUE...
is_configured() {
  local folder=$kindling_root/build/$1 definition
  [ -e "$folder/build.ninja" ] && [ ! "$kindling_root/CMakePresets.json" -nt "$folder/build.ninja" ] || return 1
  for definition in "CMAKE_HOME_DIRECTORY:INTERNAL=$kindling_root" "${@:2}"; do
    grep -qFx "$definition" "$folder/CMakeCache.txt" || return 1
  done
}

# configure PRESET [NAME:TYPE=VALUE...]: makes build/PRESET, anew when it was made with other values or elsewhere.
configure() {
  local log=$deps/configure-$1.log definitions=("LIBTORCH:PATH=$LIBTORCH" "${@:2}")
  if is_configured "$1" "${definitions[@]}"; then return; fi
  check_tool_versions
  say "configuring build/$1 with LibTorch $(libtorch_version "$LIBTORCH") in $LIBTORCH"
  mkdir -p "$deps"
  (cd "$kindling_root" && cmake --fresh --preset "$1" "${definitions[@]/#/-D}") >"$log" 2>&1 || {
    grep -A 12 'CMake Error' "$log" >&2 || tail -n 20 "$log" >&2
    stop "CMake could not configure build/$1 (all it said is in $log)"
  }
  grep -A 5 '^CMake Warning' "$log" >&2 || true
}

# build PRESET [TARGET...]: results alone belong on the standard output.
build() {
  local targets=()
  limit_jobs
  if [ $# -gt 1 ]; then targets=(--target "${@:2}"); fi
  (cd "$kindling_root" && cmake --build --preset "$1" "${targets[@]}") >&2 || stop "build/$1 could not be built"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  case ${1:-dev} in
    dev | release | ci | asan | tsan) ;;
    *) stop "unknown preset '$1'; usage: scripts/setup.sh [dev|release|ci|asan|tsan]" ;;
  esac
  need_build_packages "${test_packages[@]}"
  find_libtorch
  configure "${1:-dev}"
  say "ready: cmake --build --preset ${1:-dev}"
fi
