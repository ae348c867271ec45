! Two ranks train one model on their samples: with the ranks of MPI_COMM_WORLD, and with those of a communicator that has
! other ranks than MPI_COMM_WORLD.
program test_of_mpi
  use, intrinsic :: iso_fortran_env, only: error_unit, real64
  use kindling
  use kindling_mpi
  use mpi
  implicit none
  integer, parameter :: n = 24, num_steps = 20
  character(len=80), parameter :: MODEL(4) = [character(len=80) :: 'model.name="mlp_regressor"', 'model.hidden=[8]', &
    'model.num_targets=1', 'trainer.precision="64-true"']
  real(real64) :: x(3, n), y(1, n)
  character(len=300) :: errmsg
  type(kindling_group) :: group
  integer :: rank, ierr, provided, stat, reversed, self, inter, failures = 0

  call kindling_group_join_mpi(group, MPI_COMM_WORLD, stat=stat, errmsg=errmsg)
  call check(stat == KINDLING_USAGE_ERROR .and. index(errmsg, 'MPI_Init') > 0, 'before MPI_Init: ' // trim(errmsg))
  call MPI_Init_thread(MPI_THREAD_FUNNELED, provided, ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call make_samples()

  call kindling_group_join_mpi(group, MPI_COMM_NULL, stat=stat, errmsg=errmsg)
  call check(stat == KINDLING_USAGE_ERROR .and. index(errmsg, 'MPI_COMM_NULL') > 0, 'MPI_COMM_NULL: ' // trim(errmsg))
  call MPI_Comm_split(MPI_COMM_WORLD, rank, 0, self, ierr)
  call MPI_Intercomm_create(self, 0, MPI_COMM_WORLD, 1 - rank, 7, inter, ierr)
  call kindling_group_join_mpi(group, inter, stat=stat, errmsg=errmsg)
  call check(stat == KINDLING_USAGE_ERROR .and. index(errmsg, 'inter-communicator') > 0, 'inter-communicator: ' // trim(errmsg))

  call train_together(MPI_COMM_WORLD, 'MPI_COMM_WORLD')
  call MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, reversed, ierr)
  call train_together(reversed, 'the reversed ranks')
  if (rank == 0) call train_together(self, 'a communicator of one rank')
  if (failures > 0) error stop 'test_of_mpi'
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(a)', 'mpi: ok'
  call MPI_Finalize(ierr)

contains

  subroutine check(condition, name)
    logical, intent(in) :: condition
    character(len=*), intent(in) :: name
    if (condition) return
    failures = failures + 1
    write (error_unit, '(2a)') 'failed: ', name
  end subroutine

  subroutine make_samples()
    integer :: i, k
    do i = 1, n
      do k = 1, 3
        x(k, i) = sin(1.7d0 * i + k)
      end do
      y(1, i) = x(1, i) * x(2, i) + 0.5d0 * x(3, i)
    end do
  end subroutine

  ! The ranks of the communicator train on their parts of the samples; the last step is without samples on all but rank 0. The model
  ! is that of one process with all samples.
  subroutine train_together(communicator, name)
    integer, intent(in) :: communicator
    character(len=*), intent(in) :: name
    type(kindling_trainer) :: together, alone
    real(real64) :: outputs(1, n), expected(1, n)
    integer :: own_rank, size, step, first, last
    call MPI_Comm_rank(communicator, own_rank, ierr)
    call MPI_Comm_size(communicator, size, ierr)
    call kindling_group_join_mpi(group, communicator, timeout_s=60d0)
    call kindling_create(together, MODEL, group)
    call kindling_create(alone, MODEL)
    first = own_rank * n / size + 1
    last = (own_rank + 1) * n / size
    do step = 1, num_steps
      call kindling_train_step(together, x(:, first:last), y(:, first:last))
      call kindling_train_step(alone, x, y)
    end do
    if (own_rank /= 0) last = first - 1
    call kindling_train_step(together, x(:, first:last), y(:, first:last))
    call kindling_train_step(alone, x(:, 1:n / size), y(:, 1:n / size))
    call kindling_infer(together, x, outputs)
    call kindling_infer(alone, x, expected)
    ! The sums of the gradients are in another order.
    call check(maxval(abs(outputs - expected)) < 1d-12, name // ': the model of one process')
    call kindling_free(alone)

    ! All ranks save and resume; the steps that follow are bit-identical.
    call kindling_save(together, 'together.safetensors')
    call kindling_train_step(together, x(:, first:last), y(:, first:last))
    call kindling_infer(together, x, expected)
    call kindling_free(together)
    call MPI_Barrier(communicator, ierr)
    call kindling_create(together, MODEL, group)
    call kindling_resume(together, 'together.safetensors')
    call kindling_train_step(together, x(:, first:last), y(:, first:last))
    call kindling_infer(together, x, outputs)
    call check(maxval(abs(outputs - expected)) <= 0, name // ': a resumed run')
    call kindling_free(together)
    call kindling_free(group)
  end subroutine
end program
