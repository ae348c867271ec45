#!/usr/bin/env bash
# Fuzzes every reader of foreign bytes with libFuzzer under the address and undefined-behaviour sanitizers, several at once:
#   ./scripts/fuzz.sh [SECONDS EACH (60)]
# It begins with tests/fuzz/seeds and with what it has found to be new before (build/fuzz/NAME.corpus). Ends with the executions of each.
# What breaks a reader stays in build/fuzz/NAME.crash-… Needs clang and its sanitizer runtime (Debian: clang libclang-rt-14-dev);
# exit code 77: they are not there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60}
export jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)} seconds
mkdir -p build/fuzz

if ! clang++ -fsanitize=fuzzer,address -x c++ - -o build/fuzz/probe 2>build/fuzz/probe.log \
  <<<'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'; then
  echo "fuzz: clang++ with libFuzzer is missing (Debian: apt-get install clang libclang-rt-14-dev)" >&2
  exit 77
fi

compiler=(clang++)
if command -v ccache >/dev/null; then compiler=(ccache clang++); fi
flags=(-std=c++20 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -Iinclude -Isrc '-DKINDLING_VERSION="fuzz"')
# Libraries that test.sh installs.
codecs=() left_out=(! -name no_png_image.cpp ! -name no_jpeg_image.cpp)
# HDF5 and NetCDF read their files themselves.
left_out+=(! -name 'hdf5_*.cpp')
for part in array coordinates file writer; do left_out+=(! -name "netcdf_$part.cpp"); done
for codec in webp:webp/decode.h tiff:tiffio.h; do
  if clang++ -fsyntax-only -include "${codec#*:}" -x c++ /dev/null 2>/dev/null; then
    codecs+=("-l${codec%:*}") left_out+=(! -name "no_${codec%:*}_image.cpp")
  else
    left_out+=(! -name "${codec%:*}_image.cpp")
  fi
done
if clang++ -fsyntax-only -include libdeflate.h -x c++ /dev/null 2>/dev/null; then
  codecs+=(-ldeflate) left_out+=(! -name inflate_with_zlib.cpp)
else
  left_out+=(! -name inflate_with_libdeflate.cpp)
fi
mapfile -t sources < <(find src/base src/formats src/config -name '*.cpp' "${left_out[@]}" | sort)
printf '%s\n' "${sources[@]}" tests/fuzz/*_fuzzer.cpp | xargs -P "$jobs" -I {} bash -c '
  "${@:2}" -fsanitize=fuzzer-no-link -c "$1" -o "build/fuzz/$(basename "$1").o"' _ {} "${compiler[@]}" "${flags[@]}"
objects=()
for source in "${sources[@]}"; do objects+=("build/fuzz/$(basename "$source").o"); done

fuzzers=()
for source in tests/fuzz/*_fuzzer.cpp; do
  fuzzer=$(basename "$source" .cpp)
  fuzzers+=("$fuzzer")
  clang++ -fsanitize=fuzzer,address,undefined "build/fuzz/$fuzzer.cpp.o" "${objects[@]}" -lspdlog -lfmt -lz -lutf8proc -lpng -ljpeg "${codecs[@]}" -o "build/fuzz/$fuzzer"
  mkdir -p "build/fuzz/$fuzzer.corpus"
done

echo "fuzz: ${#fuzzers[@]} fuzzers for $seconds s each, $jobs at once"
code=0
printf '%s\n' "${fuzzers[@]}" | xargs -P "$jobs" -I {} bash -c '
  cd build/fuzz
  ./$1 -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=10 -artifact_prefix="$1." -verbosity=0 -print_final_stats=1 \
    "$1.corpus" "../../tests/fuzz/seeds/$1" >"$1.log" 2>&1 || { tail -n 40 "$1.log" >&2; exit 1; }' _ {} || code=1
for fuzzer in "${fuzzers[@]}"; do
  count=$(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$fuzzer.log")
  echo "fuzz: $fuzzer: ${count:-no} executions$(grep -q '^stat::' "build/fuzz/$fuzzer.log" || echo ', stopped by a finding')"
done
exit "$code"
