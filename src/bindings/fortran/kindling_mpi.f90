! Groups of processes for Fortran programs with MPI. Compile this file with the program's MPI wrapper, such as mpif90, and
! kindling_mpi_fortran.c with that for C; both belong to one MPI.
module kindling_mpi
  use, intrinsic :: iso_c_binding
  use kindling, only: kindling_group
  implicit none
  private
  public :: kindling_group_join_mpi

  interface
    ! Joins the ranks of a communicator, which train one model; all of them call this. `communicator` is a handle of `use mpi` or
    ! mpif.h, such as MPI_COMM_WORLD, or the component MPI_VAL of type(MPI_Comm) of `use mpi_f08`. After `timeout_s` seconds
    ! without an answer a rank counts as lost; 0, as without it: 1800.
    subroutine kindling_group_join_mpi(group, communicator, timeout_s, stat, errmsg) &
        bind(C, name='kindling_fortran_group_join_mpi')
      import
      type(kindling_group), intent(inout) :: group
      integer(c_int), intent(in) :: communicator
      real(c_double), intent(in), optional :: timeout_s
      integer(c_int), intent(out), optional :: stat
      character(kind=c_char, len=*), intent(inout), optional :: errmsg
    end subroutine
  end interface
end module
