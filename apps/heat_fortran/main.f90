! A solver that trains a surrogate of its conduction term while it runs:
!
!     heat_fortran FOLDER LAST_STEP [PRECISION]
!
! FOLDER gets a restart file of the solver and a checkpoint of the surrogate, of the same step. A run that was killed
! continues from both and computes the same numbers. PRECISION is that of the surrogate: 32-true or 64-true.
program heat_fortran
  use, intrinsic :: iso_fortran_env, only: real64
  use heat_solver
  use kindling
  implicit none
  integer, parameter :: save_every = 25
  type(heat_state) :: state
  type(kindling_trainer) :: surrogate
  real(real64) :: features(nx, ny, num_features), rate(nx, ny, 1), predicted(nx, ny, 1)
  character(len=:), allocatable :: folder, precision
  integer :: last_step
  logical :: is_restart

  call read_arguments()
  call kindling_create(surrogate, [character(len=40) :: &
    'model.name = "mlp_regressor"', 'model.hidden = [32, 32]', 'model.activation = "tanh"', &
    'optimizer.name = "adam"', 'optimizer.lr = 0.003', 'trainer.num_threads = 1', &
    'trainer.precision = "' // precision // '"'])
  call read_restart(state, folder // '/heat.restart', is_restart)
  if (is_restart) call kindling_resume(surrogate, checkpoint_of(state%step))

  do while (state%step < last_step)
    call neighbours_of(state, features)
    call compute_rate(state, rate(:, :, 1))
    call kindling_train_cells(surrogate, features, rate)  ! [nx * ny, 5] and [nx * ny, 1], without a copy in Fortran
    call advance(state, rate(:, :, 1))
    print '(a, i0, a, es23.16, a, es23.16)', 'step ', state%step, ' loss ', kindling_loss_value(surrogate), ' heat ', &
      sum(state%u)
    if (mod(state%step, save_every) == 0) call save_both()
  end do

  ! The surrogate in place of the solver's own term.
  call neighbours_of(state, features)
  call compute_rate(state, rate(:, :, 1))
  call kindling_infer_cells(surrogate, features, predicted)
  print '(a, es9.2, a, es9.2)', 'largest rate ', maxval(abs(rate)), ', largest error of the surrogate ', &
    maxval(abs(predicted - rate))
  call kindling_free(surrogate)

contains

  ! The restart file comes last: it names the step whose checkpoint is complete.
  subroutine save_both()
    call kindling_save(surrogate, checkpoint_of(state%step))
    call write_restart(state, folder // '/heat.restart')
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
