! The ranks of MPI, each with some of the rows of the field, in their order. serial_ranks.f90 is the same module without MPI.
module ranks
  use, intrinsic :: iso_fortran_env, only: real64
  use kindling
  use kindling_mpi
  use mpi
  implicit none
  private
  public :: start_ranks, finish_ranks, create_trainer, exchange_rows, gather_rows, total, largest

  integer, protected, public :: rank = 0, num_ranks = 1
  type(kindling_group) :: group

contains

  subroutine start_ranks()
    integer :: provided, ierr
    call MPI_Init_thread(MPI_THREAD_FUNNELED, provided, ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call MPI_Comm_size(MPI_COMM_WORLD, num_ranks, ierr)
  end subroutine

  subroutine finish_ranks()
    integer :: ierr
    call kindling_free(group)
    call MPI_Finalize(ierr)
  end subroutine

  ! All ranks train one model: the gradients are the mean over the samples of all.
  subroutine create_trainer(trainer, settings)
    type(kindling_trainer), intent(out) :: trainer
    character(len=*), intent(in) :: settings(:)
    call kindling_group_join_mpi(group, MPI_COMM_WORLD)
    call kindling_create(trainer, settings, group)
  end subroutine

  ! Copies the first and last row into the frames of the neighbours.
  subroutine exchange_rows(u)
    real(real64), intent(inout) :: u(:, :)
    integer :: below, above, last, ierr
    below = merge(rank - 1, MPI_PROC_NULL, rank > 0)
    above = merge(rank + 1, MPI_PROC_NULL, rank < num_ranks - 1)
    last = size(u, 2)
    call MPI_Sendrecv(u(:, 2), size(u, 1), MPI_DOUBLE_PRECISION, below, 0, u(:, last), size(u, 1), MPI_DOUBLE_PRECISION, &
      above, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    call MPI_Sendrecv(u(:, last - 1), size(u, 1), MPI_DOUBLE_PRECISION, above, 1, u(:, 1), size(u, 1), MPI_DOUBLE_PRECISION, &
      below, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  end subroutine

  ! Collects the rows of all ranks, without their frames, in rank 0; the boundary is 0.
  subroutine gather_rows(u, whole)
    real(real64), intent(in) :: u(:, :)
    real(real64), intent(out) :: whole(:, :)
    integer :: counts(num_ranks), offsets(num_ranks), count, i, ierr
    count = size(u, 1) * (size(u, 2) - 2)
    call MPI_Gather(count, 1, MPI_INTEGER, counts, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    offsets = [(sum(counts(1:i - 1)), i = 1, num_ranks)]
    whole = 0
    call MPI_Gatherv(u(:, 2:size(u, 2) - 1), count, MPI_DOUBLE_PRECISION, whole(:, 2:size(whole, 2) - 1), counts, offsets, &
      MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, ierr)
  end subroutine

  real(real64) function total(value)
    real(real64), intent(in) :: value
    integer :: ierr
    call MPI_Allreduce(value, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  end function

  real(real64) function largest(value)
    real(real64), intent(in) :: value
    integer :: ierr
    call MPI_Allreduce(value, largest, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
  end function
end module
