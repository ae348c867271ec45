#!/usr/bin/env bash
# The commands with which a reader begins, as printed, in a copy of the repository:
#
#   first_commands.sh SOURCE LIBTORCH BUILD PAGE SCRIPT...
#
# PAGE has the two files of the project `first`, in its first cmake and cpp blocks. BUILD takes the place of build/release, and ./scripts/train.sh
# is skipped, since it takes as long as a build; with "-" it is typed, too (scripts/soak.sh). ./scripts/test.sh, which runs this test, is skipped.
set -euo pipefail
source=$1 build=$3 page=$4
export LIBTORCH=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if cache=$(ccache --get-config cache_dir 2>/dev/null); then export CCACHE_DIR=$cache; fi
export HOME=$work/home
mkdir "$HOME" "$work/kindling" "$work/kindling/first"

# block LANGUAGE: the first one of the page.
block() { awk -v fence="\`\`\`$1" '$0 == fence && !done { inside = 1; next } /^```/ && inside { inside = 0; done = 1 } inside' "$page"; }

cd "$work/kindling"
block cmake >first/CMakeLists.txt
block cpp >first/main.cpp
skipped='test' expected=('validation accuracy 0\.9' "^$HOME/kindling/bin/kindling$")
if [ "$build" = - ]; then
  tar -C "$source" --exclude=./build --exclude=./.deps --exclude=./.git --exclude=./tests -cf - . | tar -xf -
  expected+=('best val acc 0\.9')
else
  mkdir build
  ln -s "$build" build/release
  skipped='(test|train)'
fi
grep -hvE "^\./scripts/$skipped\.sh" "${@:5}" >"$work/commands.sh"
printf 'command -v kindling\n' >>"$work/commands.sh"
bash -ex "$work/commands.sh" 2>&1 | tee "$work/log"
for text in "${expected[@]}"; do
  grep -q "$text" "$work/log" || {
    echo "no output matches '$text'"
    exit 1
  }
done
