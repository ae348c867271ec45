#!/usr/bin/env bash
# gfortran 12.2.0: a section of a pointer to components, p => t%y and then p(2:4), gets a wrong base address where a descriptor is made of
# it: in a pointer assignment q => p(2:4), and as an argument of a bind(C) procedure with an assumed-rank dummy. The offset of the first
# element is counted in elements of 8 bytes instead of in objects of t, with the right extents and strides, so other components are read
# without an error. The section is right in expressions and as an argument of an assumed-shape dummy, and so is t(2:4)%y everywhere.
#
# Setting: four objects of three real64, t(i) = (i, 10 i, 100 i), p => t%y; C prints the numbers that its descriptor describes.
# Seen: p(2:4) is 20 30 40 in an expression, and 100 200 300 in C, which is z of t(1), t(2) and t(3); q => p(2:4) is 100 200 300 in Fortran and
# in C.
set -euo pipefail
# Needs gfortran-12=12.2.0-14+deb12u1 of Debian 12.
[ "$(gfortran -dumpfullversion)" = 12.2.0 ] || { echo "this is gfortran $(gfortran -dumpfullversion), not 12.2.0"; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >show.c <<'C'
#include <ISO_Fortran_binding.h>
#include <stdio.h>

void show(const CFI_cdesc_t* array) {
  for (CFI_index_t i = 0; i < array->dim[0].extent; ++i)
    printf("%g ", *(const double*)((const char*)array->base_addr + i * array->dim[0].sm));
  printf("\n");
  fflush(stdout);
}
C
cat >main.f90 <<'FORTRAN'
program main
  implicit none
  interface
    subroutine show(array) bind(C)
      type(*), dimension(..), intent(in) :: array
    end subroutine
  end interface
  type :: object
    double precision :: x, y, z
  end type
  type(object), target :: t(4)
  double precision, pointer :: p(:), q(:)
  integer :: i
  do i = 1, 4
    t(i) = object(i, 10 * i, 100 * i)
  end do
  p => t%y
  q => p(2:4)
  if (any(abs(p(2:4) - [20, 30, 40]) > 0)) error stop 'the section is wrong in Fortran'
  call expect(p(2:4))
  call show(p)
  call show(t(2:4)%y)
  call show(p(2:4))
  call show(q)
  print '(3(1x, i0))', nint(q)
contains
  subroutine expect(array)
    double precision, intent(in) :: array(:)
    if (any(abs(array - [20, 30, 40]) > 0)) error stop 'the section is wrong in a procedure of Fortran'
  end subroutine
end program
FORTRAN
for options in -O0 -O2; do
  gcc $options -c show.c
  gfortran -std=f2018 $options main.f90 show.o -o main
  ./main | tee seen.txt
  diff - seen.txt <<'SEEN'
10 20 30 40 
20 30 40 
100 200 300 
100 200 300 
 100 200 300
SEEN
done
echo "as described"
