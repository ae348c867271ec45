! The equation u_t = div(k(u) grad u) + source on a rectangle, in explicit steps; u is 0 on the boundary. A state has all rows of
! cells, or those of one rank.
module heat_solver
  use, intrinsic :: iso_c_binding, only: c_char, c_int, c_null_char
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none
  private
  public :: heat_state, start, compute_rate, advance, neighbours_of, write_restart, read_restart

  integer, parameter, public :: nx = 32, ny = 24, num_features = 5
  real(real64), parameter :: dt = 0.2_real64  ! in units where the cells are 1 wide

  type :: heat_state
    integer :: step = 0, first = 1, last = ny  ! of the rows
    real(real64), allocatable :: u(:, :)       ! (0:nx + 1, first - 1:last + 1), with a frame of cells of the boundary or of other ranks
  end type

  interface
    function c_rename(from, to) bind(C, name='rename') result(code)
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: from(*), to(*)
      integer(c_int) :: code
    end function
  end interface

contains

  subroutine start(state, first, last)
    type(heat_state), intent(out) :: state
    integer, intent(in) :: first, last
    state%first = first
    state%last = last
    allocate (state%u(0:nx + 1, first - 1:last + 1), source=0._real64)
  end subroutine

  elemental function conductivity(u) result(k)
    real(real64), intent(in) :: u
    real(real64) :: k
    k = 0.5_real64 / (1 + u * u)
  end function

  ! Computes the rate of change by conduction: what the surrogate learns.
  subroutine compute_rate(state, rate)
    type(heat_state), intent(in) :: state
    real(real64), intent(out) :: rate(nx, state%first:state%last)
    integer :: i, j
    do j = state%first, state%last
      do i = 1, nx
        associate (u => state%u)
          rate(i, j) = ((flux(u(i, j), u(i + 1, j)) + flux(u(i, j), u(i - 1, j))) + flux(u(i, j), u(i, j + 1))) + &
            flux(u(i, j), u(i, j - 1))
        end associate
      end do
    end do
  contains
    pure function flux(here, there) result(amount)
      real(real64), intent(in) :: here, there
      real(real64) :: amount
      amount = (0.5_real64 * (conductivity(here) + conductivity(there))) * (there - here)
    end function
  end subroutine

  ! Makes the next state; a source wanders over the rectangle.
  subroutine advance(state, rate)
    type(heat_state), intent(inout) :: state
    real(real64), intent(in) :: rate(nx, state%first:state%last)
    integer :: i, j
    state%u(1:nx, state%first:state%last) = state%u(1:nx, state%first:state%last) + dt * rate
    i = 1 + mod(7 * state%step, nx)
    j = 1 + mod(5 * state%step, ny)
    if (j >= state%first .and. j <= state%last) state%u(i, j) = state%u(i, j) + 1
    state%step = state%step + 1
  end subroutine

  ! Writes each cell and its four neighbours as features of the cell.
  subroutine neighbours_of(state, features)
    type(heat_state), intent(in) :: state
    real(real64), intent(out) :: features(nx, state%first:state%last, num_features)
    associate (first => state%first, last => state%last)
      features(:, :, 1) = state%u(1:nx, first:last)
      features(:, :, 2) = state%u(0:nx - 1, first:last)
      features(:, :, 3) = state%u(2:nx + 1, first:last)
      features(:, :, 4) = state%u(1:nx, first - 1:last - 1)
      features(:, :, 5) = state%u(1:nx, first + 1:last + 1)
    end associate
  end subroutine

  ! Writes the step and the whole field into `path`, which is the old file or the new one at any time, never half of it.
  subroutine write_restart(step, whole, path)
    integer, intent(in) :: step
    real(real64), intent(in) :: whole(0:nx + 1, 0:ny + 1)
    character(len=*), intent(in) :: path
    integer :: unit
    open (newunit=unit, file=path // '.tmp', access='stream', form='unformatted', status='replace', action='write')
    write (unit) step, whole
    close (unit)
    if (c_rename(path // '.tmp' // c_null_char, path // c_null_char) /= 0) error stop 'cannot write the restart file'
  end subroutine

  ! Reads the rows of the state from it; without the file the state stays as it is, and `exists` is false.
  subroutine read_restart(state, path, exists)
    type(heat_state), intent(inout) :: state
    character(len=*), intent(in) :: path
    logical, intent(out) :: exists
    real(real64) :: whole(0:nx + 1, 0:ny + 1)
    integer :: unit
    inquire (file=path, exist=exists)
    if (.not. exists) return
    open (newunit=unit, file=path, access='stream', form='unformatted', status='old', action='read')
    read (unit) state%step, whole
    close (unit)
    state%u(:, :) = whole(:, state%first - 1:state%last + 1)
  end subroutine
end module
