#!/usr/bin/env bash
# Builds the documentation as a website in build/site: the pages of docs/ by MkDocs and the API reference by Doxygen.
#
# Needs python3 (with venv), cmake and doxygen. MkDocs comes from PyPI into .deps/venv-docs. No LibTorch is needed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

readonly site=$kindling_root/build/site

for tool in python3 cmake doxygen; do
  command -v "$tool" >/dev/null || need_packages "$tool"
done
install_mkdocs || stop "pip could not install MkDocs (its output is in $deps/pip-docs.log)"

cd "$kindling_root"
KINDLING_SITE_API=1 "$docs_venv/bin/mkdocs" build --strict --site-dir "$site"
cmake "-DOUTPUT=$kindling_root/build/site_api" -P docs/api/reference.cmake
rm -rf "$site/api"
mv build/site_api/html "$site/api"
rm -rf build/site_api
say "the site is in $site; read it with: python3 -m http.server --directory $site"
