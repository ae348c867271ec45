! What arrives at the C interface from arrays of every rank, kind and layout: recorder.c keeps it.
module recorded
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit, int8, int16, int32, int64, real32, real64
  use kindling
  implicit none

  integer, parameter :: FLOAT32 = 1, FLOAT64 = 2, INT_8 = 5, INT_16 = 6, INT_32 = 7, INT_64 = 8, BOOL = 10
  integer :: failures = 0
  type(kindling_trainer) :: net

  interface
    function recorded_count() bind(C) result(count)
      import
      integer(c_int) :: count
    end function
    function recorded_rank(i) bind(C) result(rank)
      import
      integer(c_int), value :: i
      integer(c_int) :: rank
    end function
    function recorded_dtype(i) bind(C) result(dtype)
      import
      integer(c_int), value :: i
      integer(c_int) :: dtype
    end function
    function recorded_shape(i, d) bind(C) result(extent)
      import
      integer(c_int), value :: i, d
      integer(c_int64_t) :: extent
    end function
    function recorded_stride(i, d) bind(C) result(stride)
      import
      integer(c_int), value :: i, d
      integer(c_int64_t) :: stride
    end function
    function recorded_first(i) bind(C) result(element)
      import
      integer(c_int), value :: i
      real(c_double) :: element
    end function
    function recorded_last(i) bind(C) result(element)
      import
      integer(c_int), value :: i
      real(c_double) :: element
    end function
    function recorded_data(i) bind(C) result(data)
      import
      integer(c_int), value :: i
      type(c_ptr) :: data
    end function
  end interface

contains

  subroutine check(condition, name)
    logical, intent(in) :: condition
    character(len=*), intent(in) :: name
    if (condition) return
    failures = failures + 1
    write (error_unit, '(2a)') 'failed: ', name
  end subroutine

  ! The first array of the latest call.
  subroutine expect(name, dtype, shape, strides, first, last, number)
    character(len=*), intent(in) :: name
    integer, intent(in) :: dtype, shape(:), strides(:)
    real(real64), intent(in) :: first, last
    integer, intent(in), optional :: number
    integer :: d, i
    i = 1
    if (present(number)) i = number
    call check(recorded_count() >= i, name // ': arrives')
    call check(recorded_dtype(i) == dtype, name // ': dtype')
    call check(recorded_rank(i) == size(shape), name // ': rank')
    do d = 1, size(shape)
      call check(recorded_shape(i, d) == shape(d), name // ': shape')
      call check(recorded_stride(i, d) == strides(d), name // ': strides')
    end do
    call check(abs(recorded_first(i) - first) < 0.5, name // ': first element')
    call check(abs(recorded_last(i) - last) < 0.5, name // ': last element')
  end subroutine

  subroutine expect_borrowed(name, number, address)
    character(len=*), intent(in) :: name
    integer, intent(in) :: number
    type(c_ptr), intent(in) :: address
    type(c_ptr) :: data
    data = recorded_data(number)
    call check(c_associated(data, address), name // ': borrowed')
  end subroutine

  ! An error whose text contains `words`.
  subroutine expect_error(name, stat, errmsg, words)
    character(len=*), intent(in) :: name, errmsg, words
    integer, intent(in) :: stat
    call check(stat == KINDLING_USAGE_ERROR, name // ': stat')
    call check(index(errmsg, words) > 0, name // ': errmsg is ' // trim(errmsg))
    call check(kindling_error() == trim(errmsg), name // ': kindling_error() is the same')
    call check(kindling_error_part(KINDLING_LOCATION) /= '', name // ': location')
  end subroutine
end module

program descriptors_test
  use recorded
  implicit none
  type :: point
    real(real64) :: x, y
    integer(int32) :: n
  end type
  real(real64), target :: a(12, 5)
  type(point), target :: points(4)
  integer :: i, j, stat
  character(len=200) :: errmsg

  do j = 1, 5
    do i = 1, 12
      a(i, j) = i + 100 * j
    end do
  end do
  do i = 1, 4
    points(i) = point(i, 10 * i, 100 * i)
  end do
  call ranks()
  call kinds()
  call sections()
  call refused()
  call several()
  call cells()
  call masks()
  if (failures > 0) error stop 'descriptors_test'
  print '(a)', 'descriptors: ok'

contains

  subroutine ranks()
    real(real64) :: r0
    real(real64) :: r1(2), r2(2, 3), r3(2, 3, 4), r4(2, 3, 4, 5), r5(2, 3, 4, 5, 2), r6(2, 3, 4, 5, 2, 3)
    real(real64) :: r7(2, 3, 4, 5, 2, 3, 2), r8(1, 1, 1, 1, 1, 1, 1, 1)
    r0 = 7
    r1 = [1, 2]
    r2 = 2; r3 = 3; r4 = 4; r5 = 5; r6 = 6; r7 = 7; r8 = 8
    r7(1, 1, 1, 1, 1, 1, 1) = 1
    call kindling_train_step(net, r0, r0)
    call expect('rank 0', FLOAT64, [integer ::], [integer ::], 7d0, 7d0)
    call kindling_train_step(net, r1, r1)
    call expect('rank 1', FLOAT64, [2], [1], 1d0, 2d0)
    call kindling_train_step(net, r2, r2)
    call expect('rank 2', FLOAT64, [3, 2], [2, 1], 2d0, 2d0)
    call kindling_train_step(net, r3, r3)
    call expect('rank 3', FLOAT64, [4, 3, 2], [6, 2, 1], 3d0, 3d0)
    call kindling_train_step(net, r4, r4)
    call expect('rank 4', FLOAT64, [5, 4, 3, 2], [24, 6, 2, 1], 4d0, 4d0)
    call kindling_train_step(net, r5, r5)
    call expect('rank 5', FLOAT64, [2, 5, 4, 3, 2], [120, 24, 6, 2, 1], 5d0, 5d0)
    call kindling_train_step(net, r6, r6)
    call expect('rank 6', FLOAT64, [3, 2, 5, 4, 3, 2], [240, 120, 24, 6, 2, 1], 6d0, 6d0)
    call kindling_train_step(net, r7, r7)
    call expect('rank 7', FLOAT64, [2, 3, 2, 5, 4, 3, 2], [720, 240, 120, 24, 6, 2, 1], 1d0, 7d0)
    call kindling_train_step(net, r8, r8, stat, errmsg)
    call expect_error('rank 8', stat, errmsg, 'rank 8')
  end subroutine

  subroutine kinds()
    real(real32) :: f4(3)
    integer(int8) :: i1(3)
    integer(int16) :: i2(3)
    integer(int32) :: i4(3)
    integer(int64) :: i8(3)
    logical(c_bool) :: l1(3)
    logical :: l4(3), l42(2, 3)
    logical(int64) :: l8(3)
    complex(real64) :: z(3)
    character(len=3) :: text(3)
    class(*), allocatable :: any(:)
    type(c_ptr) :: pointers(3)
    integer, parameter :: extended = selected_real_kind(18)
    real(extended) :: r10(3)
    type(kindling_array_counts) :: before, after

    f4 = [1, 2, 3]; i1 = [1_int8, 2_int8, 3_int8]; i2 = [1_int16, 2_int16, 3_int16]; i4 = [1, 2, 3]; i8 = i4
    l1 = [.true., .true., .false.]; l4 = l1; l8 = l1; z = 1; text = 'abc'; r10 = 1; pointers = c_null_ptr
    call kindling_train_step(net, f4, f4)
    call expect('real32', FLOAT32, [3], [1], 1d0, 3d0)
    call kindling_train_step(net, i1, i1)
    call expect('int8', INT_8, [3], [1], 1d0, 3d0)
    call kindling_train_step(net, i2, i2)
    call expect('int16', INT_16, [3], [1], 1d0, 3d0)
    call kindling_train_step(net, i4, i4)
    call expect('int32', INT_32, [3], [1], 1d0, 3d0)
    call kindling_train_step(net, i8, i8)
    call expect('int64', INT_64, [3], [1], 1d0, 3d0)

    before = kindling_count_arrays()
    call kindling_train_step(net, l1, l1)
    call expect('c_bool', BOOL, [3], [1], 1d0, 0d0)
    call expect_borrowed('c_bool', 1, address_of(l1))
    after = kindling_count_arrays()
    call check(after%logicals_copied == before%logicals_copied, 'c_bool: not counted')
    call kindling_train_step(net, l4, l8)
    call expect('logical', BOOL, [3], [1], 1d0, 0d0)
    call expect('logical of 8 bytes', BOOL, [3], [1], 1d0, 0d0, number=2)
    l42 = reshape([.true., .false., .false., .false., .false., .true.], [2, 3])
    call kindling_train_step(net, l42(2:1:-1, :), l42(:, 3:1:-2))
    call expect('logical, negative stride', BOOL, [3, 2], [2, 1], 0d0, 0d0)
    call expect('logical, every second column', BOOL, [2, 2], [2, 1], 0d0, 0d0, number=2)
    call kindling_train_step(net, transpose(l42), transpose(l42))
    call expect('logical, transposed', BOOL, [2, 3], [3, 1], 1d0, 1d0)
    after = kindling_count_arrays()
    call check(after%logicals_copied == before%logicals_copied + 6, 'logical: counted')

    call kindling_train_step(net, z, f4, stat, errmsg)
    call expect_error('complex', stat, errmsg, 'type')
    call kindling_train_step(net, text, f4, stat, errmsg)
    call expect_error('character', stat, errmsg, 'type')
    call kindling_train_step(net, points, f4, stat, errmsg)
    call expect_error('derived type', stat, errmsg, 'type')
    call kindling_train_step(net, pointers, f4, stat, errmsg)
    call expect_error('c_ptr', stat, errmsg, 'type')
    call kindling_train_step(net, r10, f4, stat, errmsg)
    call expect_error('extended real', stat, errmsg, 'type')
    allocate (any, source=f4)
    call kindling_train_step(net, any, f4, stat, errmsg)
    call expect_error('class(*)', stat, errmsg, 'type')
    call kindling_train_step(net, f4, z, stat, errmsg)
    call expect_error('complex target', stat, errmsg, 'target')
  end subroutine

  subroutine sections()
    real(real64), pointer :: p(:, :), component(:)
    real(real64), allocatable :: b(:, :)
    complex(real64) :: z(3)
    call kindling_train_step(net, a(2:10:3, 4:1:-1), a)
    call expect('section with a negative stride', FLOAT64, [4, 3], [-12, 3], 402d0, 108d0)
    call kindling_train_step(net, transpose(a), a)
    call expect('transpose', FLOAT64, [12, 5], [1, 12], 101d0, 512d0)
    call expect_borrowed('transpose', 1, c_loc(a))
    call kindling_train_step(net, a(5:4, :), a(:, 1:0))
    call expect('no rows', FLOAT64, [5, 0], [12, 1], 0d0, 0d0)
    call expect('no columns', FLOAT64, [0, 12], [12, 1], 0d0, 0d0, number=2)
    call kindling_train_step(net, a(:, 3), a(4, :))
    call expect('a column', FLOAT64, [12], [1], 301d0, 312d0)
    call expect('a row', FLOAT64, [5], [12], 104d0, 504d0, number=2)
    call kindling_train_step(net, points%y, points(4:1:-1)%n)
    call expect('components', FLOAT64, [4], [3], 10d0, 40d0)
    call expect_borrowed('components', 1, c_loc(points(1)%y))
    call expect('components, backwards', INT_32, [4], [-6], 400d0, 100d0, number=2)
    component => points%y
    ! Without the parentheses gfortran 12 passes a wrong address.
    call kindling_train_step(net, component, (component(2:4:2)))
    call expect('pointer to components', FLOAT64, [4], [3], 10d0, 40d0)
    call expect('copy of its section', FLOAT64, [2], [1], 20d0, 40d0, number=2)
    z = [(1d0, 2d0), (3d0, 4d0), (5d0, 6d0)]
    call kindling_train_step(net, z%re, z%im)
    call expect('real parts', FLOAT64, [3], [2], 1d0, 5d0)
    call expect('imaginary parts', FLOAT64, [3], [2], 2d0, 6d0, number=2)
    p(0:, 5:) => a
    call kindling_train_step(net, p, p(1:2, 6:7))
    call expect('pointer', FLOAT64, [5, 12], [12, 1], 101d0, 512d0)
    call expect('section of a pointer', FLOAT64, [2, 2], [12, 1], 202d0, 303d0, number=2)
    allocate (b(-1:3, 0:4), source=5d0)
    call kindling_train_step(net, b, (a([1, 3], :)))  ! gfortran 12 crashes without the parentheses
    call expect('allocatable', FLOAT64, [5, 5], [5, 1], 5d0, 5d0)
    call expect('vector subscript', FLOAT64, [5, 2], [2, 1], 101d0, 503d0, number=2)
    call kindling_train_step(net, a * 2, (points%y))
    call expect('expression', FLOAT64, [5, 12], [12, 1], 202d0, 1024d0)
    call expect('parentheses', FLOAT64, [4], [1], 10d0, 40d0, number=2)
    deallocate (b)
    allocate (b(0, 3))
    call kindling_train_step(net, b, b)
    call expect('allocated without elements', FLOAT64, [3, 0], [0, 1], 0d0, 0d0)
    call of_shape(a(2:11, :), 10)
  end subroutine

  subroutine of_shape(x, n)
    integer, intent(in) :: n
    real(real64), intent(in) :: x(:, :)
    call kindling_train_step(net, x, x(n:1:-1, 2))
    call expect('assumed shape', FLOAT64, [5, 10], [12, 1], 102d0, 511d0)
    call expect('section of it', FLOAT64, [10], [-1], 211d0, 202d0, number=2)
  end subroutine

  subroutine refused()
    real(real64), allocatable :: unallocated(:, :)
    real(real64), pointer :: dissociated(:)
    allocate (unallocated(1, 1))
    deallocate (unallocated)
    allocate (dissociated(1))
    deallocate (dissociated)
    call kindling_train_step(net, unallocated, a, stat, errmsg)
    call expect_error('unallocated', stat, errmsg, 'not allocated')
    call check(index(errmsg, 'input: ') == 1, 'unallocated: names the argument')
    call kindling_train_step(net, a, unallocated, stat, errmsg)
    call check(index(errmsg, 'target: ') == 1, 'unallocated target: names the argument')
    call kindling_train_step(net, dissociated, a, stat, errmsg)
    call expect_error('null pointer', stat, errmsg, 'not allocated')
    call kindling_infer(net, a, unallocated, stat, errmsg)
    call expect_error('unallocated output', stat, errmsg, 'output: ')
    call kindling_train_step_masked(net, a, a, unallocated, stat, errmsg)
    call expect_error('unallocated mask', stat, errmsg, 'mask: ')
    call with_absent()
    call assumed_size(a, a)
    errmsg = 'kept'
    call kindling_train_step(net, a, a, stat, errmsg)
    call check(stat == KINDLING_OK .and. errmsg == 'kept', 'success: errmsg keeps its value')
  end subroutine

  subroutine with_absent(of_unknown_shape, of_shape_3, of_any_rank, allocatable)
    real(real64), intent(in), optional :: of_unknown_shape(:, :), of_shape_3(3)
    type(*), dimension(..), intent(in), optional :: of_any_rank
    real(real64), allocatable, intent(in), optional :: allocatable(:)
    call kindling_train_step(net, of_unknown_shape, a, stat, errmsg)
    call expect_error('absent, assumed shape', stat, errmsg, 'not present')
    call kindling_train_step(net, of_shape_3, a, stat, errmsg)
    call expect_error('absent, explicit shape', stat, errmsg, 'not present')
    call kindling_train_step(net, a, of_any_rank, stat, errmsg)
    call expect_error('absent, assumed rank', stat, errmsg, 'not present')
    call kindling_train_step(net, a, a, stat, errmsg, input2=of_unknown_shape, target2=of_any_rank)
    call check(recorded_count() == 2 .and. stat == KINDLING_OK, 'absent second arrays are not there')
    if (present(allocatable)) error stop 'with_absent'
  end subroutine

  subroutine assumed_size(x, y)
    real(real64), intent(in) :: x(*), y(3, *)
    call kindling_train_step(net, x, a, stat, errmsg)
    call expect_error('assumed size', stat, errmsg, 'assumed-size')
    call kindling_train_step(net, y, a, stat, errmsg)
    call expect_error('assumed size of rank 2', stat, errmsg, 'assumed-size')
    call kindling_train_step(net, x(1:4), y(:, 1:2))
    call expect('section of assumed size', FLOAT64, [4], [1], 101d0, 104d0)
    call expect('section of assumed size, rank 2', FLOAT64, [2, 3], [3, 1], 101d0, 106d0, number=2)
  end subroutine

  subroutine several()
    real(real64) :: x(2, 3)
    x = 1
    call kindling_train_step(net, x, x, input2=2 * x, input3=3 * x, input4=4 * x, target2=5 * x, target3=6 * x, target4=7 * x)
    call check(recorded_count() == 8, 'four inputs and targets')
    call check(abs(recorded_first(4) - 4) < 0.5, 'fourth input')
    call check(abs(recorded_first(8) - 7) < 0.5, 'fourth target')
    call kindling_train_step(net, x, x, stat, errmsg, input3=x)
    call expect_error('a gap', stat, errmsg, 'absent')
    call kindling_infer(net, x, a, input2=x, output2=points%y)
    call check(recorded_count() == 4, 'two inputs and outputs')
    call expect('second output', FLOAT64, [4], [3], 10d0, 40d0, number=4)
    call kindling_train_step(net, x, x, stat, errmsg, input2=[(1d0, 2d0)])
    call expect_error('second input', stat, errmsg, 'input2: ')
  end subroutine

  subroutine cells()
    real(real64) :: field(4, 3, 2), other(5, 3, 2)
    integer :: ix, iy, ic
    do ic = 1, 2
      do iy = 1, 3
        do ix = 1, 4
          field(ix, iy, ic) = ix + 10 * iy + 100 * ic
        end do
      end do
    end do
    other = 1
    call kindling_train_cells(net, field, field(:, :, 2:2))
    call expect('cells', FLOAT64, [12, 2], [1, 12], 111d0, 234d0)
    call expect('cells of one channel', FLOAT64, [12, 1], [1, 12], 211d0, 234d0, number=2)
    call kindling_train_cells(net, field(:, :, 2:1:-1), field(1:4:2, :, :))
    call expect('channels backwards', FLOAT64, [12, 2], [1, -12], 211d0, 134d0)
    call expect('every second cell', FLOAT64, [6, 2], [2, 12], 111d0, 233d0, number=2)
    call kindling_train_cells(net, field(2, :, :), field(4:1:-1, 3, :))
    call expect('a line of cells', FLOAT64, [3, 2], [4, 12], 112d0, 232d0)
    call expect('a line backwards', FLOAT64, [4, 2], [-1, 12], 134d0, 231d0, number=2)
    call kindling_train_cells(net, field(2:1, :, :), field(3:3, 2:2, :))
    call expect('no cells', FLOAT64, [0, 2], [1, 12], 0d0, 0d0)
    call expect('one cell', FLOAT64, [1, 2], [1, 12], 123d0, 223d0, number=2)
    call kindling_train_cells(net, field(2:3, :, :), field, stat, errmsg)
    call expect_error('interior', stat, errmsg, 'no common stride')
    call kindling_train_cells(net, field, other(2:5, :, :), stat, errmsg)
    call expect_error('interior of a target', stat, errmsg, 'target: ')
    call kindling_train_cells(net, field(:, 1, 1), field, stat, errmsg)
    call expect_error('no channels', stat, errmsg, 'dimension of cells')
    call kindling_infer_cells(net, field, field(:, :, 1:1))
    call expect('cells to infer', FLOAT64, [12, 2], [1, 12], 111d0, 234d0)
    call expect('cells of the output', FLOAT64, [12, 1], [1, 12], 111d0, 134d0, number=2)
  end subroutine

  subroutine masks()
    real(real64) :: field(4, 3, 2)
    logical :: wet(4, 3), bits(5)
    logical(c_bool), target :: wet_bytes(4, 3)
    field = 1
    wet = .true.
    wet(4, 3) = .false.
    wet_bytes = wet
    bits = .true.
    call kindling_train_step_masked(net, a, a, bits)
    call expect('mask', BOOL, [5], [1], 1d0, 1d0, number=3)
    call kindling_train_cells_masked(net, field, field, wet)
    call expect('mask of cells', BOOL, [12], [1], 1d0, 0d0, number=3)
    call kindling_train_cells_masked(net, field, field, wet_bytes)
    call expect('mask of bytes', BOOL, [12], [1], 1d0, 0d0, number=3)
    call expect_borrowed('mask of bytes', 3, c_loc(wet_bytes))
    call kindling_train_cells_masked(net, field(2:3, 1, :), field(2:3, 1, :), wet(2:3, 1))
    call expect('mask of a line', BOOL, [2], [1], 1d0, 1d0, number=3)
    call kindling_train_cells_masked(net, field, field, wet_bytes(2:3, :), stat, errmsg)
    call expect_error('mask of a section', stat, errmsg, 'mask: ')
    call kindling_infer(net, field, wet, stat, errmsg)
    call expect_error('output of logicals', stat, errmsg, 'logicals')
  end subroutine

  function address_of(bytes) result(address)
    logical(c_bool), target, intent(in) :: bytes(:)
    type(c_ptr) :: address
    address = c_loc(bytes)
  end function
end program
