! Training, evaluation, callbacks and saved state through the module. Compiled with -ffpe-trap=invalid,zero,overflow.
module training_cases
  use, intrinsic :: ieee_arithmetic, only: ieee_is_finite
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit, int64, real32, real64
  use kindling
  implicit none

  integer :: failures = 0, num_logged = 0
  character(len=80), parameter :: MODEL(4) = [character(len=80) :: 'model.name="mlp_regressor"', 'model.hidden=[8]', &
    'model.num_targets=2', 'optimizer.lr=0.01']

  ! Counts events, stops at a step, or fails at an event.
  type, extends(kindling_callback) :: counter
    integer :: batches = 0, epochs = 0, stop_at = -1, fail_at = -1
    real(real64) :: loss = -1
  contains
    procedure :: on_event => count_event
  end type

contains

  subroutine count_event(self, trainer, event, stat)
    class(counter), intent(inout) :: self
    type(kindling_trainer), intent(in) :: trainer
    integer(c_int), intent(in) :: event
    integer(c_int), intent(inout) :: stat
    if (event == KINDLING_ON_BATCH_END) self%batches = self%batches + 1
    if (event == KINDLING_ON_EPOCH_END) then
      self%epochs = self%epochs + 1
      self%loss = kindling_metric(trainer, 'train_loss')
    end if
    if (self%batches == self%stop_at) call kindling_request_stop(trainer)
    if (event == self%fail_at) stat = 3
  end subroutine

  subroutine count_message(level, message)
    integer(c_int), intent(in) :: level
    character(len=*), intent(in) :: message
    if (level >= KINDLING_LOG_DEBUG .and. len(message) > 0) num_logged = num_logged + 1
  end subroutine

  subroutine check(condition, name)
    logical, intent(in) :: condition
    character(len=*), intent(in) :: name
    if (condition) return
    failures = failures + 1
    write (error_unit, '(2a)') 'failed: ', name
  end subroutine

  subroutine check_near(value, expected, tolerance, name)
    real(real64), intent(in) :: value, expected, tolerance
    character(len=*), intent(in) :: name
    call check(abs(value - expected) <= tolerance * max(1d0, abs(expected)), name)
  end subroutine

  subroutine check_equal(value, expected, name)
    real(real64), intent(in) :: value, expected
    character(len=*), intent(in) :: name
    call check(abs(value - expected) <= 0, name)
  end subroutine

  ! The first call makes the weights, from a generator that all trainers use.
  subroutine make_with_weights(trainer, samples)
    type(kindling_trainer), intent(out) :: trainer
    real(real64), intent(in) :: samples(:, :)
    real(real64) :: outputs(2, size(samples, 2))
    call kindling_create(trainer, MODEL)
    call kindling_infer(trainer, samples, outputs)
  end subroutine

  ! Samples of a smooth function: x(3, n), y(2, n).
  subroutine make_samples(x, y)
    real(real64), intent(out) :: x(:, :), y(:, :)
    integer :: i, k
    do i = 1, size(x, 2)
      do k = 1, size(x, 1)
        x(k, i) = sin(1.7d0 * i + k)
      end do
      y(1, i) = x(1, i) + 0.5d0 * x(2, i)
      y(2, i) = x(3, i) - 0.25d0 * x(1, i)
    end do
  end subroutine
end module

program training_test
  use training_cases
  implicit none
  integer, parameter :: n = 24
  real(real64) :: x(3, n), y(2, n)
  character(len=300) :: errmsg
  integer :: stat

  call make_samples(x, y)
  call learns()
  call counts_copies()
  call masks()
  call cells()
  call calls_back()
  call fits()
  call resumes()
  call reports_errors()
  call joins_a_group()
  if (failures > 0) error stop 'training_test'
  print '(a)', 'training: ok'

contains

  subroutine learns()
    type(kindling_trainer) :: net
    type(kindling_progress) :: progress
    real(real64) :: outputs(2, n), before(2, n), first
    integer :: step
    call kindling_create(net, MODEL)
    call kindling_infer(net, x, before)
    call kindling_train_step(net, x, y)
    first = kindling_loss_value(net)
    call check_near(first, sum((before - y)**2) / size(y), 1d-6, 'the loss is that of the outputs before the step')
    call kindling_log_value(net, 'residual', 4d0)
    do step = 1, 299
      call kindling_train_step(net, x, y)
    end do
    call check(kindling_loss_value(net) < first / 100, 'the loss falls')
    call kindling_infer(net, x, outputs)
    call check(maxval(abs(outputs - y)) < 0.2, 'the outputs are near the targets')
    call kindling_infer(net, x(:, 3:7:2), outputs(:, 1:3))
    call check(maxval(abs(outputs(:, 1:3) - y(:, 3:7:2))) < 0.2, 'sections are read and written in place')
    call kindling_finish_epoch(net)
    call check(kindling_metric(net, 'train_loss') < first, 'train_loss')
    call check(kindling_metric_count(net) >= 2, 'metrics')
    call check_near(kindling_metric(net, 'residual'), 4d0, 1d-6, 'a logged value is a metric')
    progress = kindling_get_progress(net)
    call check(progress%epoch == 1 .and. progress%global_step == 300, 'progress')
    call check_near(kindling_learning_rate(net), 0.01d0, 1d-9, 'learning rate')
    call check(.not. kindling_is_done(net), 'is not done')
    call kindling_train_step(net, x * 1d200, y)  ! infinite in float32
    call check(.not. ieee_is_finite(kindling_loss_value(net)), 'a loss that is not finite is a value')
    call kindling_free(net)
  end subroutine

  subroutine counts_copies()
    type(kindling_trainer) :: net
    type(kindling_array_counts) :: before, after
    real(real32) :: x4(3, n), y4(2, n)
    x4 = real(x, real32)
    y4 = real(y, real32)
    call kindling_create(net, MODEL)
    before = kindling_count_arrays()
    call kindling_train_step(net, x4, y4)
    call kindling_train_step(net, x4(:, 1:n:2), y4(:, 1:n:2))
    after = kindling_count_arrays()
    call check(after%borrowed == before%borrowed + 4, 'real32 is borrowed')
    call kindling_train_step(net, x, y4(:, n:1:-1))
    before = kindling_count_arrays()
    call check(before%copied_for_dtype == after%copied_for_dtype + 1, 'real64 is copied into float32')
    call check(before%copied_for_strides == after%copied_for_strides + 1, 'a negative stride is copied')
    call kindling_free(net)
    call kindling_create(net, [character(len=80) :: MODEL, 'trainer.precision="64-true"'])
    call kindling_train_step(net, x, y)
    after = kindling_count_arrays()
    call check(after%borrowed == before%borrowed + 2, 'real64 is borrowed in a model of float64')
    call kindling_free(net)
  end subroutine

  subroutine masks()
    type(kindling_trainer) :: masked, packed
    logical :: keep(n)
    integer :: i
    integer, allocatable :: kept(:)
    keep = [(mod(i, 3) /= 0, i = 1, n)]
    kept = pack([(i, i = 1, n)], keep)
    call make_with_weights(masked, x)
    call make_with_weights(packed, x)
    do i = 1, 5
      call kindling_train_step_masked(masked, x, y, keep)
      call kindling_train_step(packed, (x(:, kept)), (y(:, kept)))
    end do
    call check_equal(kindling_loss_value(masked), kindling_loss_value(packed), 'a mask selects samples')
    keep = .false.
    call kindling_train_step_masked(masked, x, y, keep, stat, errmsg)
    call check(stat /= KINDLING_OK, 'a mask without samples')
    call kindling_free(masked)
    call kindling_free(packed)
  end subroutine

  subroutine cells()
    type(kindling_trainer) :: of_cells, of_samples
    real(real64) :: field(6, 4, 3), target(6, 4, 2), samples(3, n), values(2, n), outputs(6, 4, 2), expected(2, n)
    logical :: wet(6, 4)
    integer :: i
    field = reshape(transpose(x), [6, 4, 3])
    target = reshape(transpose(y), [6, 4, 2])
    samples = x
    values = y
    wet = .true.
    wet(2, 3) = .false.
    call make_with_weights(of_cells, x)
    call make_with_weights(of_samples, x)
    do i = 1, 5
      call kindling_train_cells(of_cells, field, target)
      call kindling_train_step(of_samples, samples, values)
      call check_equal(kindling_loss_value(of_cells), kindling_loss_value(of_samples), 'cells are samples')
    end do
    call kindling_train_cells_masked(of_cells, field, target, wet)
    call kindling_train_step_masked(of_samples, samples, values, reshape(wet, [n]))
    call check_equal(kindling_loss_value(of_cells), kindling_loss_value(of_samples), 'masked cells are masked samples')
    call kindling_infer_cells(of_cells, field, outputs)
    call kindling_infer(of_samples, samples, expected)
    call check(maxval(abs(outputs - reshape(transpose(expected), [6, 4, 2]))) < 1d-6, 'outputs in cells')
    call kindling_free(of_cells)
    call kindling_free(of_samples)
  end subroutine

  subroutine calls_back()
    type(kindling_trainer) :: net
    type(counter), target, save :: counts, failing
    call kindling_create(net, MODEL)
    call kindling_set_callback(net, KINDLING_ON_BATCH_END + KINDLING_ON_EPOCH_END, counts)
    call kindling_train_step(net, x, y)
    call kindling_train_step(net, x, y)
    call kindling_finish_epoch(net)
    call check(counts%batches == 2 .and. counts%epochs == 1 .and. counts%loss > 0, 'events of the program''s loop')
    failing%fail_at = KINDLING_ON_BATCH_END
    call kindling_set_callback(net, KINDLING_ON_BATCH_END, failing)
    call kindling_train_step(net, x, y, stat, errmsg)
    call check(stat == KINDLING_CALLBACK_ERROR, 'a callback that fails')
    call check(counts%batches == 2, 'the previous callback is replaced')
    call kindling_set_callback(net, 0)
    call kindling_train_step(net, x, y)
    call check(failing%batches == 1, 'no callback')
    call kindling_free(net)
  end subroutine

  subroutine fits()
    type(kindling_trainer) :: net
    type(kindling_fit_result) :: fitted
    type(counter), target, save :: stopping
    character(len=:), allocatable :: config
    integer :: i
    logical :: is_listed
    config = '[model]' // new_line('a') // 'name = "linear_regression"' // new_line('a') // '[data]' // new_line('a') // &
      'name = "synthetic_regression"' // new_line('a') // 'batch_size = 100' // new_line('a')
    call kindling_set_log(count_message, KINDLING_LOG_DEBUG)
    call kindling_create_from_text(net, config, [character(len=40) :: 'trainer.max_epochs=2', 'optimizer.lr=0.05'])
    call kindling_fit(net, fitted)
    call kindling_set_log()
    call check(num_logged > 0, 'messages')
    call check(fitted%status == KINDLING_FINISHED .and. fitted%epochs == 2 .and. fitted%diverged_step == -1, 'a fit')
    call kindling_validate(net)
    is_listed = .false.
    do i = 1, kindling_metric_count(net)
      if (kindling_metric_name(net, i) == 'val_loss') is_listed = .true.
    end do
    call check(is_listed, 'names of metrics')
    call check(kindling_metric(net, 'val_loss') >= 0, 'val_loss')
    call kindling_free(net)
    call continues_a_fit(config)
    stopping%stop_at = 3
    call kindling_create_from_text(net, config, ['trainer.max_epochs=50'])
    call kindling_set_callback(net, KINDLING_ON_BATCH_END, stopping)
    call kindling_fit(net, fitted)
    call check(fitted%status == KINDLING_STOPPED .and. fitted%global_step == 3, 'a stopped fit')
    call kindling_free(net)
  end subroutine

  ! From a file, with the checkpoints of an earlier fit.
  subroutine continues_a_fit(config)
    character(len=*), intent(in) :: config
    type(kindling_trainer) :: net
    type(kindling_fit_result) :: fitted
    type(counter), target, save :: counts
    integer :: unit
    open (newunit=unit, file='config.toml', action='write', status='replace')
    write (unit, '(a)') config
    close (unit)
    call kindling_create_from_file(net, 'config.toml', ['trainer.max_epochs=2'])
    call kindling_save_into(net, 'checkpoints')
    call kindling_fit(net)
    call kindling_free(net)
    call kindling_create_from_file(net, 'config.toml', ['trainer.max_epochs=3'])
    call kindling_set_callback(net, KINDLING_ON_EPOCH_END, counts)
    call kindling_save_into(net, 'checkpoints')
    call kindling_fit(net, fitted)
    call check(fitted%epochs == 3 .and. counts%epochs == 1, 'a fit that continues')
    call kindling_test(net, stat, errmsg)
    call check(stat == KINDLING_OK, 'test: ' // trim(errmsg))
    call kindling_free(net)
  end subroutine

  subroutine resumes()
    type(kindling_trainer) :: whole, first, second
    real(real64) :: outputs(2, n), expected(2, n)
    call make_with_weights(whole, x)
    call make_with_weights(first, x)
    call kindling_train_step(whole, x, y)
    call kindling_train_step(first, x, y)
    call kindling_save(first, 'first.safetensors')
    call kindling_save_weights(first, 'weights.safetensors')
    call kindling_free(first)
    call kindling_create(second, [character(len=80) :: MODEL, 'seed=7'])
    call kindling_resume(second, 'first.safetensors')
    call kindling_train_step(whole, x, y)
    call kindling_train_step(second, x, y)
    call check_equal(kindling_loss_value(whole), kindling_loss_value(second), 'a resumed run is bit-identical')
    call kindling_infer(whole, x, expected)
    call kindling_infer(second, x, outputs)
    call check(maxval(abs(outputs - expected)) <= 0, 'the resumed weights are bit-identical')
    call kindling_load_weights(second, 'weights.safetensors')
    call kindling_infer(second, x, outputs)
    call check(maxval(abs(outputs - expected)) > 0, 'loaded weights are those of the file')
    call kindling_free(whole)
    call kindling_free(second)
  end subroutine

  subroutine reports_errors()
    type(kindling_trainer) :: net, other
    character(len=12) :: short
    call kindling_create(net, [character(len=80) :: 'model.name="no_such_model"'], stat=stat, errmsg=errmsg)
    call check(stat == KINDLING_CONFIG_ERROR .and. index(errmsg, 'no_such_model') > 0, 'an unknown model')
    call kindling_create(net, [character(len=80) :: 'model.name="no_such_model"'], stat=stat, errmsg=short)
    call check(short == errmsg(1:12), 'a truncated errmsg')
    call check(index(kindling_error(), trim(errmsg)) == 1, 'the whole text')
    call check(kindling_error_part(KINDLING_FOUND) /= '', 'a part')
    call check(kindling_error_part(9) == '', 'an unknown part')
    call kindling_create_from_file(net, 'no such file.toml', stat=stat)
    call check(stat /= KINDLING_OK, 'a missing config')
    call kindling_train_step(net, x, y, stat, errmsg)
    call check(stat == KINDLING_USAGE_ERROR, 'a trainer that was not made')
    call kindling_create(net, MODEL)
    other = net
    call check_equal(kindling_loss_value(net, stat, errmsg), 0d0, 'a loss of 0')
    call check(stat /= KINDLING_OK, 'no loss before the first step')
    call kindling_train_step(net, x, y(:, 1:n - 1), stat, errmsg)
    call check(stat == KINDLING_DATA_ERROR .and. index(errmsg, 'reverse order') > 0, 'numbers of samples that differ')
    call kindling_train_step(net, x(1, 1), y, stat, errmsg)
    call check(stat == KINDLING_DATA_ERROR, 'a scalar')
    call kindling_infer(net, x, y(1:1, :), stat, errmsg)
    call check(stat == KINDLING_DATA_ERROR, 'a wrong shape of the output')
    call kindling_infer(net, x, y(2:1:-1, :), stat, errmsg)
    call check(stat == KINDLING_USAGE_ERROR, 'an output with a negative stride')
    call check_equal(kindling_metric(net, 'nothing', stat, errmsg), 0d0, 'a metric of 0')
    call check(stat /= KINDLING_OK, 'an unknown metric')
    call check(kindling_metric_name(net, 99, stat) == '', 'no name')
    call check(stat == KINDLING_USAGE_ERROR, 'a metric beyond the last')
    call kindling_save(net, '/no/such/folder/file.safetensors', stat)
    call check(stat /= KINDLING_OK, 'a file that cannot be written')
    call kindling_free(net)
    call kindling_train_step(other, x, y, stat, errmsg)
    call check(stat == KINDLING_USAGE_ERROR, 'a freed trainer under its second name')
    call kindling_free(net)
    call kindling_free(other, stat)
    call check(stat == KINDLING_USAGE_ERROR, 'a trainer freed twice')
  end subroutine

  subroutine joins_a_group()
    type(kindling_trainer) :: net
    type(kindling_group) :: group
    character(len=:), allocatable :: address
    integer :: port
    call kindling_free_address(address, port)
    call check(len(address) > 0 .and. port > 0, 'a free address')
    call kindling_group_join(group, 0, 1, 0, address, port, timeout_s=20d0)
    call kindling_create(net, MODEL, group)
    call kindling_train_step(net, x, y)
    call check(ieee_is_finite(kindling_loss_value(net)), 'a group of one')
    call kindling_train_step(net, x(:, 1:0), y(:, 1:0), stat, errmsg)
    call check(stat == KINDLING_OK, 'a rank without samples: ' // trim(errmsg))
    call kindling_free(net)
    call kindling_free(group)
    call check(kindling_device_count() >= 0, 'devices')
    call check(kindling_version() /= '', 'version')
  end subroutine
end program
