! A solver that trains a surrogate of its conduction term while it runs:
!
!     heat_fortran FOLDER LAST_STEP [PRECISION]
!
! FOLDER gets a restart file of the solver and a checkpoint of the surrogate, of the same step. A run that was killed
! continues from both and computes the same numbers. PRECISION is that of the surrogate: 32-true or 64-true. With
! mpi_ranks.f90, each rank has some of the rows, and all ranks train one surrogate on the cells of all.
program heat_fortran
  use, intrinsic :: iso_fortran_env, only: real64
  use heat_solver
  use kindling
  use ranks
  implicit none
  integer, parameter :: save_every = 25
  type(heat_state) :: state
  type(kindling_trainer) :: surrogate
  real(real64), allocatable :: features(:, :, :), rate(:, :, :), predicted(:, :, :)
  real(real64) :: loss, heat, largest_rate, largest_error
  character(len=:), allocatable :: folder, precision
  integer :: last_step, first_row, last_row
  logical :: is_restart

  call read_arguments()
  call start_ranks()
  if (num_ranks > ny) error stop "more ranks than rows of the field"
  first_row = rank * ny / num_ranks + 1
  last_row = (rank + 1) * ny / num_ranks
  call start(state, first_row, last_row)
  allocate (features(nx, first_row:last_row, num_features))
  allocate (rate(nx, first_row:last_row, 1), predicted(nx, first_row:last_row, 1))
  call create_trainer(surrogate, [character(len=40) :: &
    'model.name = "mlp_regressor"', 'model.hidden = [32, 32]', 'model.activation = "tanh"', &
    'optimizer.name = "adam"', 'optimizer.lr = 0.003', 'trainer.num_threads = 1', &
    'trainer.precision = "' // precision // '"'])
  call read_restart(state, folder // '/heat.restart', is_restart)
  if (is_restart) call kindling_resume(surrogate, checkpoint_of(state%step))

  do while (state%step < last_step)
    call make_samples()
    call kindling_train_cells(surrogate, features, rate)  ! [cells, 5] and [cells, 1], without a copy in Fortran
    call advance(state, rate(:, :, 1))
    loss = total(kindling_loss_value(surrogate) * size(rate)) / (nx * ny)  ! of a step on the cells of all ranks
    heat = total(sum(state%u(1:nx, first_row:last_row)))
    if (rank == 0) print '(a, i0, a, es23.16, a, es23.16)', 'step ', state%step, ' loss ', loss, ' heat ', heat
    if (mod(state%step, save_every) == 0) call save_both()
  end do

  ! The surrogate in place of the solver's own term.
  call make_samples()
  call kindling_infer_cells(surrogate, features, predicted)
  largest_rate = largest(maxval(abs(rate)))
  largest_error = largest(maxval(abs(predicted - rate)))
  if (rank == 0) print '(a, es9.2, a, es9.2)', 'largest rate ', largest_rate, ', largest error of the surrogate ', largest_error
  call kindling_free(surrogate)
  call finish_ranks()

contains

  subroutine make_samples()
    call exchange_rows(state%u)
    call neighbours_of(state, features)
    call compute_rate(state, rate(:, :, 1))
  end subroutine

  ! The restart file comes last: it names the step whose checkpoint is complete. Rank 0 writes both.
  subroutine save_both()
    real(real64) :: whole(0:nx + 1, 0:ny + 1)
    call kindling_save(surrogate, checkpoint_of(state%step))
    call gather_rows(state%u, whole)
    if (rank == 0) call write_restart(state%step, whole, folder // '/heat.restart')
  end subroutine

  function checkpoint_of(step) result(path)
    integer, intent(in) :: step
    character(len=:), allocatable :: path
    character(len=12) :: digits
    write (digits, '(i0)') step
    path = folder // '/surrogate-' // trim(digits) // '.safetensors'
  end function

  subroutine read_arguments()
    character(len=512) :: argument
    integer :: status
    if (command_argument_count() < 2) error stop 'usage: heat_fortran FOLDER LAST_STEP [PRECISION]'
    call get_command_argument(1, argument)
    folder = trim(argument)
    call get_command_argument(2, argument)
    read (argument, *, iostat=status) last_step
    if (status /= 0) error stop 'LAST_STEP is not a number'
    precision = '32-true'
    if (command_argument_count() > 2) then
      call get_command_argument(3, argument)
      precision = trim(argument)
    end if
  end subroutine
end program
