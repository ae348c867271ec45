#!/usr/bin/env bash
# Builds the documentation as a website in build/site: the pages of docs/ by MkDocs and the API reference by Doxygen.
#
# Needs python3 (with venv), cmake and doxygen. MkDocs comes from PyPI into .deps/venv-docs. No LibTorch is needed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

readonly mkdocs_version=1.6.1 pygments_version=2.21.0
readonly venv=$deps/venv-docs site=$kindling_root/build/site

for tool in python3 cmake doxygen; do
  command -v "$tool" >/dev/null || need_packages "$tool"
done
if [ "$("$venv/bin/python" -c 'import mkdocs, pygments; print(mkdocs.__version__, pygments.__version__)' 2>/dev/null)" != \
  "$mkdocs_version $pygments_version" ]; then
  say "installing MkDocs $mkdocs_version into $venv"
  rm -rf "$venv"
  python3 -m venv "$venv" || { need_packages python3-venv && python3 -m venv "$venv"; }
  run_logged pip-docs "$venv/bin/pip" install "mkdocs==$mkdocs_version" "pygments==$pygments_version" ||
    stop "pip could not install MkDocs (all it said is in $deps/pip-docs.log)"
fi

cd "$kindling_root"
KINDLING_SITE_API=1 "$venv/bin/mkdocs" build --strict --site-dir "$site"
cmake "-DOUTPUT=$kindling_root/build/site_api" -P docs/api/reference.cmake
rm -rf "$site/api"
mv build/site_api/html "$site/api"
rm -rf build/site_api
say "the site is in $site; read it with: python3 -m http.server --directory $site"
