! Calls that a compiler must refuse. Each `! CASE N: WORDS` line has words of gfortran's message; CASE 0 compiles.
module cases
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: real64
  use kindling
  implicit none
  type :: unrelated
    integer :: n = 0
  end type
#if CASE == 5
  ! CASE 5: must be ABSTRACT
  type, extends(kindling_callback) :: without_event
    integer :: n = 0
  end type
#endif
contains
  subroutine wrong_log(message)
    character(len=*), intent(in) :: message
    if (message == '') stop
  end subroutine

  subroutine call_it(net, group, x, y, constant)
    type(kindling_trainer), intent(inout) :: net
    type(kindling_group), intent(inout) :: group
    real(real64), intent(inout) :: x(:, :), y(:, :)
    real(real64), intent(in) :: constant(:, :)
    type(unrelated) :: other
    real :: single
    integer :: stat
    stat = other%n
    single = 1
    call kindling_free(group, stat)
#if CASE == 0
    call kindling_infer(net, x + constant, y, stat)
#elif CASE == 1
    call kindling_infer(net, x, 2 * y)  ! CASE 1: Non-variable expression
#elif CASE == 2
    call kindling_train_step(net, x, y, single)  ! CASE 2: passed REAL
#elif CASE == 3
    net%handle = c_null_ptr  ! CASE 3: is a PRIVATE component
#elif CASE == 4
    call kindling_set_callback(net, KINDLING_ON_EPOCH_END, other)  ! CASE 4: Type mismatch in argument
#elif CASE == 6
    single = real(kindling_metric(net, 1))  ! CASE 6: passed INTEGER
#elif CASE == 7
    call kindling_create(net, 'model.name="mlp"')  ! CASE 7: Rank mismatch in argument
#elif CASE == 8
    call kindling_train_step(group, x, y)  ! CASE 8: Type mismatch in argument
#elif CASE == 9
    call kindling_set_log(wrong_log)  ! CASE 9: Interface mismatch in dummy procedure
#elif CASE == 10
    call kindling_infer(net, x, constant)  ! CASE 10: with INTENT(IN)
#elif CASE == 11
    call kindling_log_value(net, 'residual', single)  ! CASE 11: passed REAL(4) to REAL(8)
#elif CASE == 12
    call kindling_save(net)  ! CASE 12: Missing actual argument
#endif
  end subroutine
end module
