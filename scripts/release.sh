#!/usr/bin/env bash
# Makes the files of a release from the committed sources: a source archive, an archive of the program with LibTorch inside, and their
# SHA-256 sums. Both archives depend on the commit and the build alone: made twice, they are equal byte by byte.
#
#   ./scripts/release.sh [FOLDER (build/dist)]
#
# The binary archive runs on x86-64 Linux with the C and C++ libraries of the machine that made it or newer ones, and with zlib; on
# Debian and Ubuntu nothing needs to be installed.
# From the environment: what setup.sh takes.
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

output=$(realpath -m "${1:-$kindling_root/build/dist}")
release=$(sed -n 's/^project(kindling VERSION \([0-9.]*\).*/\1/p' "$kindling_root/CMakeLists.txt")
readonly output release name=kindling-$release-linux-x86_64

# reproducible_tar FILE FOLDER: FOLDER's contents under its own name, without times, owners and modes of this machine.
reproducible_tar() {
  local date
  date=@$(git -C "$kindling_root" log -1 --format=%ct)
  tar --create --file=- --directory="$(dirname "$2")" --sort=name --mtime="$date" --owner=0 --group=0 --numeric-owner \
    --mode=u=rwX,go=rX "$(basename "$2")" | gzip --no-name >"$1"
}

# copy_licences PACKAGE.dist-info FOLDER: fails if the package has none.
copy_licences() {
  local file found=()
  if [ -d "$1/licenses" ]; then
    mkdir -p "$2"
    cp -R "$1/licenses/." "$2"
    return
  fi
  for file in "$1"/LICEN[SC]E* "$1"/[Ll]icen[sc]e*; do
    if [ -f "$file" ]; then found+=("$file"); fi
  done
  [ "${#found[@]}" -gt 0 ] || return
  mkdir -p "$2"
  cp "${found[@]}" "$2"
}

# collect_licences ARCHIVE: the licences of everything inside it, in its folder licences. Stops at a library without one.
collect_licences() {
  local folder=$1/licences file library package sources owner
  mkdir -p "$folder"
  cp "$kindling_root/LICENSE" "$folder/kindling.txt"
  # pip's packages next to LibTorch: torch, and with a CUDA build also those of NVIDIA's libraries.
  for file in "$1"/lib/*; do
    library=$(basename "$file")
    case $library in libkindling.so*) continue ;; esac
    owner=$(grep -lF "/$library," "$(dirname "$LIBTORCH")"/*.dist-info/RECORD | head -n 1) || true
    if [ -n "$owner" ]; then
      package=$(basename "$(dirname "$owner")" .dist-info)
      copy_licences "$(dirname "$owner")" "$folder/${package%%-*}" || stop "package $package, which brought $library, has no licence"
    else
      package=$(dpkg-query -S "*/$library" 2>/dev/null | head -n 1 | cut -d: -f1) || true
      [ -e "/usr/share/doc/$package/copyright" ] || stop "found no licence of lib/$library; use the LibTorch of pip's package torch"
      cp -L "/usr/share/doc/$package/copyright" "$folder/$package.txt"
    fi
  done
  # torch's package contains libgomp without GCC's terms.
  if compgen -G "$1/lib/libgomp*" >/dev/null; then
    mkdir -p "$folder/libgomp"
    cp -L /usr/share/doc/libgomp1/copyright /usr/share/common-licenses/GPL-3 "$folder/libgomp" ||
      stop "found no licence of libgomp; install the package libgomp1"
  fi
  # What is compiled in; those that CMake has fetched follow.
  for package in "${library_packages[@]}" libfmt-dev; do
    if [ -e "/usr/share/doc/$package/copyright" ]; then cp -L "/usr/share/doc/$package/copyright" "$folder/$package.txt"; fi
  done
  for sources in "$kindling_root"/build/release/_deps/kindling_*-src; do
    [ -d "$sources" ] || continue
    package=$(basename "$sources" -src)
    find "$sources" -maxdepth 1 -iname 'licen[sc]e*' -exec cp {} "$folder/${package#kindling_}.txt" \;
  done
}

if [ -n "$(git -C "$kindling_root" status --porcelain --untracked-files=no)" ]; then
  say "there are changes that are not committed: the source archive does not have them, the binary archive does"
fi
need_build_packages
find_libtorch
configure release
build release bin/kindling

mkdir -p "$output"
git -C "$kindling_root" archive --prefix="kindling-$release/" HEAD | gzip --no-name >"$output/kindling-$release.tar.gz"

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
run_logged release cmake --install "$kindling_root/build/release" --component runtime --prefix "$stage/$name" --strip ||
  stop "cmake could not install the program (its output is in $deps/release.log)"
# Without the path of this machine's LibTorch.
for file in bin/kindling lib/libkindling.so.*.*.*; do
  printf 'file(RPATH_SET FILE "%s" NEW_RPATH "$ORIGIN/../lib")\n' "$(echo "$stage/$name"/$file)" >"$stage/rpath.cmake"
  cmake -P "$stage/rpath.cmake"
done
cp -R "$kindling_root/configs" "$stage/$name/configs"
collect_licences "$stage/$name"
reproducible_tar "$output/$name.tar.gz" "$stage/$name"
(cd "$output" && sha256sum "kindling-$release.tar.gz" "$name.tar.gz" >SHA256SUMS)
cat "$output/SHA256SUMS"
