#!/usr/bin/env bash
# Fuzzes every reader of foreign bytes with libFuzzer under the address and undefined-behaviour sanitizers:
#   ./scripts/fuzz.sh [SECONDS EACH (60)]
# Needs clang and its sanitizer runtime (Debian: clang libclang-rt-14-dev). What it finds stays in build/fuzz.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60}
command -v clang++ >/dev/null || { echo "fuzz: clang++ is missing (Debian: apt-get install clang libclang-rt-14-dev)" >&2; exit 1; }

mkdir -p build/fuzz
flags=(-std=c++20 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -Iinclude -Isrc -DKINDLING_VERSION='"fuzz"')
objects=()
for source in src/base/*.cpp src/formats/*.cpp src/config/*.cpp; do
  object=build/fuzz/$(basename "$source").o
  if [ ! "$object" -nt "$source" ]; then clang++ "${flags[@]}" -fsanitize=fuzzer-no-link -c "$source" -o "$object"; fi
  objects+=("$object")
done
for source in tests/fuzz/*_fuzzer.cpp; do
  fuzzer=build/fuzz/$(basename "$source" .cpp)
  clang++ "${flags[@]}" -fsanitize=fuzzer "$source" "${objects[@]}" -lspdlog -lfmt -lz -lutf8proc -o "$fuzzer"
  mkdir -p "$fuzzer.corpus"
  seeds=()  # beginnings that it would not find by itself
  if [ -d "tests/fuzz/seeds/$(basename "$fuzzer")" ]; then seeds=("tests/fuzz/seeds/$(basename "$fuzzer")"); fi
  echo "fuzz: $fuzzer for $seconds s"
  "$fuzzer" -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=10 -artifact_prefix="$fuzzer." -verbosity=0 \
    -print_final_stats=1 "$fuzzer.corpus" ${seeds[@]+"${seeds[@]}"}
done
