#!/usr/bin/env bash
# HDF5 1.10.8 (Debian 12): H5Dget_chunk_storage_size() is an error for a chunk that was never written ("chunk storage is not allocated"), and
# sets the size to 0, although H5Dread() gives the fill value for it. A program that reads chunks itself has to recognize this text
# among the reasons for which a chunk cannot be read.
#
# Setting: a data set of 4 values in chunks of 2, of which the first was written; fill value 7.
# Seen: 16 bytes for the first chunk; -1 and the size 0 for the second; H5Dread gives 1 1 7 7.
set -euo pipefail
# Needs libhdf5-dev=1.10.8+repack1-1 of Debian 12.
version=$(dpkg-query -W -f '${Version}' libhdf5-dev)
[ "$version" = 1.10.8+repack1-1 ] || { echo "this is libhdf5-dev $version, not 1.10.8+repack1-1"; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >main.c <<'C'
#include <hdf5.h>
#include <stdio.h>

static herr_t keep(unsigned number, const H5E_error2_t* error, void* reason) {
  if (number == 0) *(const char**)reason = error->desc;
  return 0;
}

int main(void) {
  const hsize_t size = 4, chunk = 2, first = 0, second = 2, half = 2;
  const double fill = 7, ones[2] = {1, 1};
  unsigned major, minor, release;
  H5get_libversion(&major, &minor, &release);
  printf("HDF5 %u.%u.%u\n", major, minor, release);
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  const hid_t file = H5Fcreate("a.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), space = H5Screate_simple(1, &size, NULL);
  const hid_t properties = H5Pcreate(H5P_DATASET_CREATE), memory = H5Screate_simple(1, &half, NULL);
  H5Pset_chunk(properties, 1, &chunk);
  H5Pset_fill_value(properties, H5T_NATIVE_DOUBLE, &fill);
  const hid_t set = H5Dcreate2(file, "x", H5T_IEEE_F64LE, space, H5P_DEFAULT, properties, H5P_DEFAULT);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, NULL, &half, NULL);
  H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, ones);
  H5Fflush(file, H5F_SCOPE_GLOBAL);
  hsize_t bytes = 77;
  int result = H5Dget_chunk_storage_size(set, &first, &bytes);
  printf("%d %d\n", result, (int)bytes);
  bytes = 77;
  result = H5Dget_chunk_storage_size(set, &second, &bytes);
  const char* reason = "";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep, &reason);
  printf("%d %d %s\n", result, (int)bytes, reason);
  double values[4];
  H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
  printf("%g %g %g %g\n", values[0], values[1], values[2], values[3]);
  return H5Fclose(file) < 0;
}
C
gcc -I/usr/include/hdf5/serial main.c -lhdf5_serial -o main
./main | tee seen.txt
diff - seen.txt <<'SEEN'
HDF5 1.10.8
0 16
-1 0 chunk storage is not allocated
1 1 7 7
SEEN
echo "as described"
