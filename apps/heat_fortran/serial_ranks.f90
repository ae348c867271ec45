! A program without MPI has one rank. mpi_ranks.f90 is the same module with MPI.
module ranks
  use, intrinsic :: iso_fortran_env, only: real64
  use kindling
  implicit none
  private
  public :: start_ranks, finish_ranks, create_trainer, exchange_rows, gather_rows, total, largest

  integer, parameter, public :: rank = 0, num_ranks = 1

contains

  subroutine start_ranks()
  end subroutine

  subroutine finish_ranks()
  end subroutine

  subroutine create_trainer(trainer, settings)
    type(kindling_trainer), intent(out) :: trainer
    character(len=*), intent(in) :: settings(:)
    call kindling_create(trainer, settings)
  end subroutine

  ! On both sides of the only rank is the boundary.
  subroutine exchange_rows(u)
    real(real64), intent(inout) :: u(:, :)
    u(:, 1) = 0
    u(:, size(u, 2)) = 0
  end subroutine

  subroutine gather_rows(u, whole)
    real(real64), intent(in) :: u(:, :)
    real(real64), intent(out) :: whole(:, :)
    whole = u
  end subroutine

  real(real64) function total(value)
    real(real64), intent(in) :: value
    total = value
  end function

  real(real64) function largest(value)
    real(real64), intent(in) :: value
    largest = value
  end function
end module
