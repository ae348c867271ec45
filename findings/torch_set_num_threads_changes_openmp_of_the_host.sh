#!/usr/bin/env bash
# LibTorch of torch 2.13.0 in a program that is built with gcc 12's -fopenmp: at::set_num_threads(1) makes the program's own parallel
# regions serial. The package brings a lib/libgomp.so.1 of its own, but the program has loaded the system's before, and the dynamic
# linker knows a library by its soname: there is one libgomp, one pool of threads and one number of threads.
#
# Setting: a C program with omp_set_num_threads(2) opens libtorch_cpu.so and calls at::set_num_threads(1) by its symbol.
# Seen: a region has 2 threads before the call and 1 after it, omp_get_max_threads() is 1, and the only libgomp in the process is not
# that of the package.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
lib=$("$folder/venv/bin/python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent / "lib")')
[ -e "$lib/libgomp.so.1" ]
cat >"$folder/host.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

static int threads_of_a_region(void) {
  int threads = 0;
#pragma omp parallel
#pragma omp single
  threads = omp_get_num_threads();
  return threads;
}

int main(int argc, char** argv) {
  (void)argc;
  omp_set_num_threads(2);
  const int before = threads_of_a_region();
  void* torch = dlopen(argv[1], RTLD_NOW);
  void (*set_num_threads)(int) = torch ? (void (*)(int))dlsym(torch, "_ZN2at15set_num_threadsEi") : NULL;
  if (set_num_threads == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
  set_num_threads(1);
  printf("%d %d %d", before, threads_of_a_region(), omp_get_max_threads());
  char line[4096];
  int of_the_package = 0, any = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof(line), maps))
    if (strstr(line, "libgomp")) any = 1, of_the_package |= strstr(line, "torch") != NULL;
  printf(" %d %d\n", any, of_the_package);
  return 0;
}
C
gcc -O1 -fopenmp "$folder/host.c" -o "$folder/host" -ldl
seen=$("$folder/host" "$lib/libtorch_cpu.so")
echo "threads before, after, omp_get_max_threads, a libgomp, that of the package: $seen"
[ "$seen" = "2 1 1 1 0" ]
