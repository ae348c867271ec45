! Kindling for Fortran 2018: train, evaluate and run models on arrays of the program. Compile this file and
! kindling_fortran.c with your program, because module files and descriptors belong to a compiler (gfortran 12 or newer),
! and link libkindling_c.so. kindling_c.h describes each function; the names are the same.
!
! Arrays have rank 0 to 7 and are real(real32), real(real64), integer of 1 to 8 bytes, or logical. Kindling sees their
! dimensions reversed, without a copy: a(nx, ny) is [ny, nx] there, so the last dimension counts the samples. Arrays are read,
! or written, within the call only. Sections and transposes are read in place.
!
! Errors: `stat` becomes 0 or one of the codes below, and `errmsg` the text, padded or truncated; without an error errmsg keeps
! its value. Without `stat` an error stops the program with the text.
!
! A trainer or a group is a handle, as MPI's: assigning it makes a second name of the same trainer, and it lives until
! kindling_free() is called with one of them. All other names are then invalid, which a call reports as an error.
module kindling
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none
  private

  integer(c_int), parameter, public :: KINDLING_OK = 0, KINDLING_FAILED = 1, KINDLING_CONFIG_ERROR = 2, &
    KINDLING_DATA_ERROR = 3, KINDLING_CHECKPOINT_ERROR = 4, KINDLING_DEVICE_ERROR = 5, KINDLING_DISTRIBUTED_ERROR = 6, &
    KINDLING_USAGE_ERROR = 7, KINDLING_BUSY = 8, KINDLING_CALLBACK_ERROR = 9
  integer(c_int), parameter, public :: KINDLING_LOCATION = 0, KINDLING_FOUND = 1, KINDLING_EXPECTED = 2, KINDLING_HINT = 3
  integer(c_int), parameter, public :: KINDLING_LOG_DEBUG = 0, KINDLING_LOG_INFO = 1, KINDLING_LOG_WARNING = 2, &
    KINDLING_LOG_ERROR = 3
  integer(c_int), parameter, public :: KINDLING_FINISHED = 0, KINDLING_STOPPED = 1, KINDLING_DIVERGED = 2
  integer(c_int), parameter, public :: KINDLING_ON_FIT_START = 1, KINDLING_ON_BATCH_END = 2, KINDLING_ON_VALIDATION_END = 4, &
    KINDLING_ON_EPOCH_END = 8, KINDLING_ON_FIT_END = 16

  type, bind(C), public :: kindling_trainer
    private
    type(c_ptr) :: handle = c_null_ptr
  end type

  type, bind(C), public :: kindling_group
    private
    type(c_ptr) :: handle = c_null_ptr
  end type

  type, bind(C), public :: kindling_fit_result
    integer(c_int32_t) :: status = 0                 ! KINDLING_FINISHED ...
    integer(c_int64_t) :: epochs = 0, global_step = 0
    integer(c_int64_t) :: diverged_step = -1
  end type

  type, bind(C), public :: kindling_progress  ! all from 0
    integer(c_int64_t) :: epoch = 0, batch = 0, global_step = 0
    integer(c_int64_t) :: accumulated_batches = 0    ! since the latest optimizer step
  end type

  ! How many arrays of this thread were borrowed and how many copied, and the reasons.
  type, public :: kindling_array_counts
    integer(int64) :: borrowed = 0, copied_for_strides = 0, copied_for_dtype = 0
    integer(int64) :: logicals_copied = 0            ! of another kind than c_bool, into bytes
  end type

  ! Extend this type by your data and define on_event. An object of it must live, and keep its place in memory, while the
  ! trainer can call it: give it the attributes `target` and `save`.
  type :: callback_link
    class(kindling_callback), pointer :: callback => null()
  end type
  type, abstract, public :: kindling_callback
    type(callback_link), private :: link
  contains
    procedure(on_event), deferred :: on_event
  end type

  abstract interface
    ! Another `stat` than 0 ends the call in progress with KINDLING_CALLBACK_ERROR.
    subroutine on_event(self, trainer, event, stat)
      import
      class(kindling_callback), intent(inout) :: self
      type(kindling_trainer), intent(in) :: trainer
      integer(c_int), intent(in) :: event
      integer(c_int), intent(inout) :: stat
    end subroutine

    ! Called on the thread that logs, also on others than the main one. Must not call Kindling.
    subroutine kindling_log(level, message)
      import
      integer(c_int), intent(in) :: level
      character(len=*), intent(in) :: message
    end subroutine
  end interface
  public :: kindling_log

  ! --- Procedures with arrays: kindling_fortran.c calls the C functions ---
  ! The first arrays are required. They are `optional` so that an absent argument of the caller is an error instead of a crash.
  interface
    ! Trains one step on the samples of the inputs and targets.
    subroutine kindling_train_step(trainer, input, target, stat, errmsg, input2, input3, input4, target2, target3, target4) &
        bind(C, name='kindling_fortran_train_step')
      import
      type(kindling_trainer), intent(in) :: trainer
      type(*), dimension(..), intent(in), optional :: input, target
      integer(c_int), intent(out), optional :: stat
      character(kind=c_char, len=*), intent(inout), optional :: errmsg
      type(*), dimension(..), intent(in), optional :: input2, input3, input4, target2, target3, target4
    end subroutine

    ! The same on the samples for which the logicals of `mask` are true.
    subroutine kindling_train_step_masked(trainer, input, target, mask, stat, errmsg, input2, input3, input4, target2, target3, &
        target4) bind(C, name='kindling_fortran_train_step_masked')
      import
      type(kindling_trainer), intent(in) :: trainer
      type(*), dimension(..), intent(in), optional :: input, target, mask
      integer(c_int), intent(out), optional :: stat
      character(kind=c_char, len=*), intent(inout), optional :: errmsg
      type(*), dimension(..), intent(in), optional :: input2, input3, input4, target2, target3, target4
    end subroutine

    ! The same with the cells of fields as samples: a(nx, ny, channels) is [nx * ny, channels], without a copy. A section whose
    ! cells have no common stride is an error.
    subroutine kindling_train_cells(trainer, input, target, stat, errmsg, input2, input3, input4, target2, target3, target4) &
        bind(C, name='kindling_fortran_train_cells')
      import
      type(kindling_trainer), intent(in) :: trainer
      type(*), dimension(..), intent(in), optional :: input, target
      integer(c_int), intent(out), optional :: stat
      character(kind=c_char, len=*), intent(inout), optional :: errmsg
      type(*), dimension(..), intent(in), optional :: input2, input3, input4, target2, target3, target4
    end subroutine

    ! On those cells only for which mask(nx, ny) is true.
    subroutine kindling_train_cells_masked(trainer, input, target, mask, stat, errmsg, input2, input3, input4, target2, target3, &
        target4) bind(C, name='kindling_fortran_train_cells_masked')
      import
      type(kindling_trainer), intent(in) :: trainer
      type(*), dimension(..), intent(in), optional :: input, target, mask
      integer(c_int), intent(out), optional :: stat
      character(kind=c_char, len=*), intent(inout), optional :: errmsg
      type(*), dimension(..), intent(in), optional :: input2, input3, input4, target2, target3, target4
    end subroutine

    ! Runs the model and writes its outputs, which have the shapes of the arrays.
    subroutine kindling_infer(trainer, input, output, stat, errmsg, input2, input3, input4, output2, output3, output4) &
        bind(C, name='kindling_fortran_infer')
      import
      type(kindling_trainer), intent(in) :: trainer
      type(*), dimension(..), intent(in), optional :: input
      type(*), dimension(..), intent(inout), optional :: output
      integer(c_int), intent(out), optional :: stat
      character(kind=c_char, len=*), intent(inout), optional :: errmsg
      type(*), dimension(..), intent(in), optional :: input2, input3, input4
      type(*), dimension(..), intent(inout), optional :: output2, output3, output4
    end subroutine

    ! The same with the cells of fields as samples.
    subroutine kindling_infer_cells(trainer, input, output, stat, errmsg, input2, input3, input4, output2, output3, output4) &
        bind(C, name='kindling_fortran_infer_cells')
      import
      type(kindling_trainer), intent(in) :: trainer
      type(*), dimension(..), intent(in), optional :: input
      type(*), dimension(..), intent(inout), optional :: output
      integer(c_int), intent(out), optional :: stat
      character(kind=c_char, len=*), intent(inout), optional :: errmsg
      type(*), dimension(..), intent(in), optional :: input2, input3, input4
      type(*), dimension(..), intent(inout), optional :: output2, output3, output4
    end subroutine
  end interface
  public :: kindling_train_step, kindling_train_step_masked, kindling_train_cells, kindling_train_cells_masked, kindling_infer, &
    kindling_infer_cells

  ! --- The functions of kindling_c.h ---
  ! Results are intent(inout), because the functions write them on success only.
  abstract interface
    function handle_function(handle) bind(C) result(status)
      import
      type(c_ptr), value :: handle
      integer(c_int32_t) :: status
    end function
    function text_function(handle, text) bind(C) result(status)
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: text(*)
      integer(c_int32_t) :: status
    end function
    function value_function(handle, value) bind(C) result(status)
      import
      type(c_ptr), value :: handle
      real(c_double), intent(inout) :: value
      integer(c_int32_t) :: status
    end function
    function metric_function(handle, name, value) bind(C) result(status)
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), intent(inout) :: value
      integer(c_int32_t) :: status
    end function
    function create_function(text, settings, count, group, trainer) bind(C) result(status)
      import
      character(kind=c_char), intent(in) :: text(*)
      type(c_ptr), intent(in) :: settings(*)
      integer(c_size_t), value :: count
      type(c_ptr), value :: group
      type(c_ptr), intent(inout) :: trainer
      integer(c_int32_t) :: status
    end function
  end interface

  procedure(handle_function), bind(C, name='kindling_trainer_free') :: c_trainer_free
  procedure(handle_function), bind(C, name='kindling_group_free') :: c_group_free
  procedure(handle_function), bind(C, name='kindling_finish_epoch') :: c_finish_epoch
  procedure(handle_function), bind(C, name='kindling_validate') :: c_validate
  procedure(handle_function), bind(C, name='kindling_test') :: c_test
  procedure(handle_function), bind(C, name='kindling_request_stop') :: c_request_stop
  procedure(text_function), bind(C, name='kindling_save_into') :: c_save_into
  procedure(text_function), bind(C, name='kindling_save') :: c_save
  procedure(text_function), bind(C, name='kindling_resume') :: c_resume
  procedure(text_function), bind(C, name='kindling_save_weights') :: c_save_weights
  procedure(text_function), bind(C, name='kindling_load_weights') :: c_load_weights
  procedure(value_function), bind(C, name='kindling_loss_value') :: c_loss_value
  procedure(value_function), bind(C, name='kindling_learning_rate') :: c_learning_rate
  procedure(metric_function), bind(C, name='kindling_metric') :: c_metric
  procedure(create_function), bind(C, name='kindling_trainer_from_text') :: c_trainer_from_text
  procedure(create_function), bind(C, name='kindling_trainer_from_file') :: c_trainer_from_file

  interface
    function c_trainer_create(settings, count, group, trainer) bind(C, name='kindling_trainer_create') result(status)
      import
      type(c_ptr), intent(in) :: settings(*)
      integer(c_size_t), value :: count
      type(c_ptr), value :: group
      type(c_ptr), intent(inout) :: trainer
      integer(c_int32_t) :: status
    end function
    function c_group_join(rank, size, local_rank, address, port, timeout_s, group) bind(C, name='kindling_group_join') &
        result(status)
      import
      integer(c_int64_t), value :: rank, size, local_rank
      character(kind=c_char), intent(in) :: address(*)
      integer(c_int32_t), value :: port
      real(c_double), value :: timeout_s
      type(c_ptr), intent(inout) :: group
      integer(c_int32_t) :: status
    end function
    function c_free_address(address, capacity, port) bind(C, name='kindling_free_address') result(status)
      import
      character(kind=c_char), intent(inout) :: address(*)
      integer(c_size_t), value :: capacity
      integer(c_int32_t), intent(inout) :: port
      integer(c_int32_t) :: status
    end function
    function c_is_done(handle, is_done) bind(C, name='kindling_is_done') result(status)
      import
      type(c_ptr), value :: handle
      integer(c_int32_t), intent(inout) :: is_done
      integer(c_int32_t) :: status
    end function
    function c_log_value(handle, name, value) bind(C, name='kindling_log_value') result(status)
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), value :: value
      integer(c_int32_t) :: status
    end function
    function c_fit(handle, fit_result) bind(C, name='kindling_fit') result(status)
      import
      type(c_ptr), value :: handle
      type(kindling_fit_result), intent(inout) :: fit_result
      integer(c_int32_t) :: status
    end function
    function c_metric_count(handle, count) bind(C, name='kindling_metric_count') result(status)
      import
      type(c_ptr), value :: handle
      integer(c_size_t), intent(inout) :: count
      integer(c_int32_t) :: status
    end function
    function c_metric_name(handle, index, name) bind(C, name='kindling_metric_name') result(status)
      import
      type(c_ptr), value :: handle
      integer(c_size_t), value :: index
      type(c_ptr), intent(inout) :: name
      integer(c_int32_t) :: status
    end function
    function c_get_progress(handle, progress) bind(C, name='kindling_get_progress') result(status)
      import
      type(c_ptr), value :: handle
      type(kindling_progress), intent(inout) :: progress
      integer(c_int32_t) :: status
    end function
    function c_set_callback(handle, events, procedure, user_data) bind(C, name='kindling_set_callback') result(status)
      import
      type(c_ptr), value :: handle, user_data
      integer(c_int32_t), value :: events
      type(c_funptr), value :: procedure
      integer(c_int32_t) :: status
    end function
    function c_set_log(procedure, level, user_data) bind(C, name='kindling_set_log') result(status)
      import
      type(c_funptr), value :: procedure
      integer(c_int32_t), value :: level
      type(c_ptr), value :: user_data
      integer(c_int32_t) :: status
    end function
    function c_device_count(count) bind(C, name='kindling_device_count') result(status)
      import
      integer(c_int32_t), intent(inout) :: count
      integer(c_int32_t) :: status
    end function
    function c_count_arrays(counts) bind(C, name='kindling_count_arrays') result(status)
      import
      integer(c_int64_t), intent(inout) :: counts(3)
      integer(c_int32_t) :: status
    end function
    function c_logicals_copied() bind(C, name='kindling_fortran_logicals_copied') result(count)
      import
      integer(c_int64_t) :: count
    end function
    function c_version() bind(C, name='kindling_version') result(text)
      import
      type(c_ptr) :: text
    end function
    function c_error() bind(C, name='kindling_error') result(text)
      import
      type(c_ptr) :: text
    end function
    function c_error_part(part) bind(C, name='kindling_error_part') result(text)
      import
      integer(c_int32_t), value :: part
      type(c_ptr) :: text
    end function
    pure function c_strlen(text) bind(C, name='strlen') result(length)
      import
      type(c_ptr), value :: text
      integer(c_size_t) :: length
    end function
  end interface

  ! Frees a trainer with its model, or the handle of a group.
  interface kindling_free
    module procedure free_trainer, free_group
  end interface
  public :: kindling_free

  public :: kindling_create, kindling_create_from_text, kindling_create_from_file, kindling_group_join, kindling_free_address, &
    kindling_loss_value, kindling_finish_epoch, kindling_is_done, kindling_log_value, kindling_save_into, kindling_fit, &
    kindling_validate, kindling_test, kindling_metric, kindling_metric_count, kindling_metric_name, kindling_get_progress, &
    kindling_learning_rate, kindling_request_stop, kindling_save, kindling_resume, kindling_save_weights, &
    kindling_load_weights, kindling_set_callback, kindling_set_log, kindling_device_count, kindling_count_arrays, &
    kindling_error, kindling_error_part, kindling_version

  procedure(kindling_log), pointer, save :: log_procedure => null()

contains

  ! --- Making trainers ---

  ! Makes a trainer of settings such as 'optimizer.lr=0.01', whose trailing blanks do not count.
  subroutine kindling_create(trainer, settings, group, stat, errmsg)
    type(kindling_trainer), intent(out) :: trainer
    character(len=*), intent(in) :: settings(:)
    type(kindling_group), intent(in), optional :: group
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(kind=c_char), allocatable, target :: characters(:, :)
    call null_terminate(characters, settings)
    call finish(c_trainer_create(pointers_to(characters), size(settings, kind=c_size_t), handle_of(group), trainer%handle), stat, &
      errmsg)
  end subroutine

  ! Makes a trainer of the text of a config file.
  subroutine kindling_create_from_text(trainer, text, settings, group, stat, errmsg)
    type(kindling_trainer), intent(out) :: trainer
    character(len=*), intent(in) :: text
    character(len=*), intent(in), optional :: settings(:)
    type(kindling_group), intent(in), optional :: group
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(kind=c_char), allocatable, target :: characters(:, :)
    call null_terminate(characters, settings)
    call finish(c_trainer_from_text(c_text(text), pointers_to(characters), size(characters, 2, c_size_t), handle_of(group), &
      trainer%handle), stat, errmsg)
  end subroutine

  ! Makes a trainer of a config file.
  subroutine kindling_create_from_file(trainer, path, settings, group, stat, errmsg)
    type(kindling_trainer), intent(out) :: trainer
    character(len=*), intent(in) :: path
    character(len=*), intent(in), optional :: settings(:)
    type(kindling_group), intent(in), optional :: group
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(kind=c_char), allocatable, target :: characters(:, :)
    call null_terminate(characters, settings)
    call finish(c_trainer_from_file(c_text(path), pointers_to(characters), size(characters, 2, c_size_t), handle_of(group), &
      trainer%handle), stat, errmsg)
  end subroutine

  subroutine free_trainer(trainer, stat, errmsg)
    type(kindling_trainer), intent(inout) :: trainer
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    integer(c_int32_t) :: status
    status = c_trainer_free(trainer%handle)
    if (status == KINDLING_OK) trainer%handle = c_null_ptr
    call finish(status, stat, errmsg)
  end subroutine

  ! --- Groups of processes ---

  ! Joins the processes that train one model; all of them call this.
  subroutine kindling_group_join(group, rank, size, local_rank, address, port, timeout_s, stat, errmsg)
    type(kindling_group), intent(out) :: group
    integer, intent(in) :: rank, size, local_rank
    character(len=*), intent(in) :: address
    integer, intent(in) :: port
    real(real64), intent(in), optional :: timeout_s
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    real(c_double) :: timeout
    timeout = 0
    if (present(timeout_s)) timeout = timeout_s
    call finish(c_group_join(int(rank, c_int64_t), int(size, c_int64_t), int(local_rank, c_int64_t), c_text(address), &
      int(port, c_int32_t), timeout, group%handle), stat, errmsg)
  end subroutine

  ! Finds an address of this machine and a free port of it, which rank 0 sends to the others.
  subroutine kindling_free_address(address, port, stat, errmsg)
    character(len=:), allocatable, intent(out) :: address
    integer, intent(out) :: port
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(kind=c_char), target :: text(256)
    integer(c_int32_t) :: free_port
    text = c_null_char
    free_port = 0
    call finish(c_free_address(text, size(text, kind=c_size_t), free_port), stat, errmsg)
    address = fortran_text(c_loc(text))
    port = free_port
  end subroutine

  subroutine free_group(group, stat, errmsg)
    type(kindling_group), intent(inout) :: group
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    integer(c_int32_t) :: status
    status = c_group_free(group%handle)
    if (status == KINDLING_OK) group%handle = c_null_ptr
    call finish(status, stat, errmsg)
  end subroutine

  ! --- Steps of the program's loop ---

  ! Waits for the loss of the latest step; 0 on an error.
  function kindling_loss_value(trainer, stat, errmsg) result(loss)
    type(kindling_trainer), intent(in) :: trainer
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    real(real64) :: loss
    loss = 0
    call finish(c_loss_value(trainer%handle, loss), stat, errmsg)
  end function

  ! Ends an epoch of the program's loop: the means of its steps become metrics.
  subroutine kindling_finish_epoch(trainer, stat, errmsg)
    type(kindling_trainer), intent(in) :: trainer
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call finish(c_finish_epoch(trainer%handle), stat, errmsg)
  end subroutine

  ! True if max_epochs, max_steps or a stop has been reached, or the run has diverged; false on an error.
  function kindling_is_done(trainer, stat, errmsg) result(is_done)
    type(kindling_trainer), intent(in) :: trainer
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    logical :: is_done
    integer(c_int32_t) :: answer
    answer = 0
    call finish(c_is_done(trainer%handle, answer), stat, errmsg)
    is_done = answer /= 0
  end function

  ! Logs a value with those of the next step.
  subroutine kindling_log_value(trainer, name, value, stat, errmsg)
    type(kindling_trainer), intent(in) :: trainer
    character(len=*), intent(in) :: name
    real(real64), intent(in) :: value
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call finish(c_log_value(trainer%handle, c_text(name), value), stat, errmsg)
  end subroutine

  ! --- Whole fits and evaluation ---

  ! Saves checkpoints into `folder`, and continues a fit from the latest one there.
  subroutine kindling_save_into(trainer, folder, stat, errmsg)
    type(kindling_trainer), intent(in) :: trainer
    character(len=*), intent(in) :: folder
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call finish(c_save_into(trainer%handle, c_text(folder)), stat, errmsg)
  end subroutine

  ! Trains on the data of the config.
  subroutine kindling_fit(trainer, fit_result, stat, errmsg)
    type(kindling_trainer), intent(in) :: trainer
    type(kindling_fit_result), intent(out), optional :: fit_result
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(kindling_fit_result) :: answer
    call finish(c_fit(trainer%handle, answer), stat, errmsg)
    if (present(fit_result)) fit_result = answer
  end subroutine

  ! Measures the model on the validation samples of the config's data.
  subroutine kindling_validate(trainer, stat, errmsg)
    type(kindling_trainer), intent(in) :: trainer
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call finish(c_validate(trainer%handle), stat, errmsg)
  end subroutine

  ! Measures the model on the test samples of the config's data.
  subroutine kindling_test(trainer, stat, errmsg)
    type(kindling_trainer), intent(in) :: trainer
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call finish(c_test(trainer%handle), stat, errmsg)
  end subroutine

  ! Returns a metric of the latest epoch, fit, validation or test, such as 'train_loss'; 0 on an error.
  function kindling_metric(trainer, name, stat, errmsg) result(value)
    type(kindling_trainer), intent(in) :: trainer
    character(len=*), intent(in) :: name
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    real(real64) :: value
    value = 0
    call finish(c_metric(trainer%handle, c_text(name), value), stat, errmsg)
  end function

  function kindling_metric_count(trainer, stat, errmsg) result(count)
    type(kindling_trainer), intent(in) :: trainer
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    integer :: count
    integer(c_size_t) :: answer
    answer = 0
    call finish(c_metric_count(trainer%handle, answer), stat, errmsg)
    count = int(answer)
  end function

  ! Returns the name of a metric; `index` is from 1 to kindling_metric_count().
  function kindling_metric_name(trainer, index, stat, errmsg) result(name)
    type(kindling_trainer), intent(in) :: trainer
    integer, intent(in) :: index
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=:), allocatable :: name
    type(c_ptr) :: text
    text = c_null_ptr
    call finish(c_metric_name(trainer%handle, int(index, c_size_t) - 1_c_size_t, text), stat, errmsg)
    name = fortran_text(text)
  end function

  function kindling_get_progress(trainer, stat, errmsg) result(progress)
    type(kindling_trainer), intent(in) :: trainer
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(kindling_progress) :: progress
    call finish(c_get_progress(trainer%handle, progress), stat, errmsg)
  end function

  ! Returns the learning rate of the latest step; 0 on an error.
  function kindling_learning_rate(trainer, stat, errmsg) result(rate)
    type(kindling_trainer), intent(in) :: trainer
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    real(real64) :: rate
    rate = 0
    call finish(c_learning_rate(trainer%handle, rate), stat, errmsg)
  end function

  ! Requests that the running fit ends after its current step; for any thread.
  subroutine kindling_request_stop(trainer, stat, errmsg)
    type(kindling_trainer), intent(in) :: trainer
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call finish(c_request_stop(trainer%handle), stat, errmsg)
  end subroutine

  ! --- Saved state ---

  ! Saves the whole state of the run, durably.
  subroutine kindling_save(trainer, path, stat, errmsg)
    type(kindling_trainer), intent(in) :: trainer
    character(len=*), intent(in) :: path
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call finish(c_save(trainer%handle, c_text(path)), stat, errmsg)
  end subroutine

  ! Restores it: the next step is the one that would have followed, bit-identically.
  subroutine kindling_resume(trainer, path, stat, errmsg)
    type(kindling_trainer), intent(in) :: trainer
    character(len=*), intent(in) :: path
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call finish(c_resume(trainer%handle, c_text(path)), stat, errmsg)
  end subroutine

  subroutine kindling_save_weights(trainer, path, stat, errmsg)
    type(kindling_trainer), intent(in) :: trainer
    character(len=*), intent(in) :: path
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call finish(c_save_weights(trainer%handle, c_text(path)), stat, errmsg)
  end subroutine

  subroutine kindling_load_weights(trainer, path, stat, errmsg)
    type(kindling_trainer), intent(in) :: trainer
    character(len=*), intent(in) :: path
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call finish(c_load_weights(trainer%handle, c_text(path)), stat, errmsg)
  end subroutine

  ! --- Callbacks and messages ---

  ! Calls callback%on_event() at `events`, a sum of KINDLING_ON_...; without `callback`: at none. Replaces the previous one.
  subroutine kindling_set_callback(trainer, events, callback, stat, errmsg)
    type(kindling_trainer), intent(in) :: trainer
    integer(c_int), intent(in) :: events
    class(kindling_callback), intent(inout), target, optional :: callback
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    if (present(callback)) then
      callback%link%callback => callback
      call finish(c_set_callback(trainer%handle, events, c_funloc(call_callback), c_loc(callback%link)), stat, errmsg)
    else
      call finish(c_set_callback(trainer%handle, 0_c_int32_t, c_null_funptr, c_null_ptr), stat, errmsg)
    end if
  end subroutine

  function call_callback(handle, event, user_data) bind(C) result(status)
    type(c_ptr), value :: handle, user_data
    integer(c_int32_t), value :: event
    integer(c_int32_t) :: status
    type(callback_link), pointer :: link
    status = 0
    call c_f_pointer(user_data, link)
    call link%callback%on_event(kindling_trainer(handle), event, status)
  end function

  ! Calls a procedure with every message of `level` and above; without `receive` Kindling is silent, as at the start.
  subroutine kindling_set_log(receive, level, stat, errmsg)
    procedure(kindling_log), optional :: receive
    integer(c_int), intent(in), optional :: level
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    integer(c_int32_t) :: lowest
    lowest = KINDLING_LOG_INFO
    if (present(level)) lowest = level
    if (present(receive)) then
      log_procedure => receive
      call finish(c_set_log(c_funloc(call_log), lowest, c_null_ptr), stat, errmsg)
    else
      call finish(c_set_log(c_null_funptr, lowest, c_null_ptr), stat, errmsg)
    end if
  end subroutine

  subroutine call_log(level, message, user_data) bind(C)
    integer(c_int32_t), value :: level
    type(c_ptr), value :: message, user_data
    if (.not. c_associated(user_data)) call log_procedure(level, fortran_text(message))
  end subroutine

  ! --- The library ---

  ! Returns the number of GPUs that can be used; 0: the CPU is used.
  function kindling_device_count(stat, errmsg) result(count)
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    integer :: count
    integer(c_int32_t) :: answer
    answer = 0
    call finish(c_device_count(answer), stat, errmsg)
    count = answer
  end function

  function kindling_count_arrays() result(counts)
    type(kindling_array_counts) :: counts
    integer(c_int64_t) :: numbers(3)
    numbers = 0
    call finish(c_count_arrays(numbers))
    counts = kindling_array_counts(numbers(1), numbers(2), numbers(3), c_logicals_copied())
  end function

  function kindling_version() result(version)
    character(len=:), allocatable :: version
    version = fortran_text(c_version())
  end function

  ! Returns the whole text of the latest error of this thread; '' if there was none.
  function kindling_error() result(text)
    character(len=:), allocatable :: text
    text = fortran_text(c_error())
  end function

  ! Returns one part of it: KINDLING_LOCATION, KINDLING_FOUND, KINDLING_EXPECTED or KINDLING_HINT.
  function kindling_error_part(part) result(text)
    integer(c_int), intent(in) :: part
    character(len=:), allocatable :: text
    text = fortran_text(c_error_part(part))
  end function

  ! --- Private ---

  ! Ends a call in Fortran's way.
  subroutine finish(status, stat, errmsg)
    integer(c_int32_t), intent(in) :: status
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=:), allocatable :: message
    if (present(stat)) stat = status
    if (status == KINDLING_OK) return
    message = kindling_error()
    if (present(errmsg)) errmsg = message
    if (.not. present(stat)) error stop message
  end subroutine

  ! Stops the program for kindling_fortran.c.
  subroutine error_stop() bind(C, name='kindling_fortran_error_stop')
    call finish(kindling_failed)
  end subroutine

  function handle_of(group) result(handle)
    type(kindling_group), intent(in), optional :: group
    type(c_ptr) :: handle
    handle = c_null_ptr
    if (present(group)) handle = group%handle
  end function

  function c_text(text)
    character(len=*), intent(in) :: text
    character(kind=c_char, len=:), allocatable :: c_text
    c_text = trim(text) // c_null_char
  end function

  function fortran_text(address) result(text)
    type(c_ptr), intent(in) :: address
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: characters(:)
    integer :: i
    text = ''
    if (.not. c_associated(address)) return
    call c_f_pointer(address, characters, [c_strlen(address)])
    text = repeat(' ', size(characters))
    do i = 1, size(characters)
      text(i:i) = characters(i)
    end do
  end function

  ! Writes each setting into a column, without its trailing blanks.
  subroutine null_terminate(characters, settings)
    character(kind=c_char), allocatable, target, intent(out) :: characters(:, :)
    character(len=*), intent(in), optional :: settings(:)
    integer :: i, k
    if (.not. present(settings)) then
      allocate (characters(1, 0))
      return
    end if
    allocate (characters(len(settings) + 1, size(settings)))
    characters = c_null_char
    do k = 1, size(settings)
      do i = 1, len_trim(settings(k))
        characters(i, k) = settings(k)(i:i)
      end do
    end do
  end subroutine

  function pointers_to(characters) result(pointers)
    character(kind=c_char), target, intent(in) :: characters(:, :)
    type(c_ptr), allocatable :: pointers(:)
    integer :: k
    allocate (pointers(size(characters, 2)))
    do k = 1, size(characters, 2)
      pointers(k) = c_loc(characters(1, k))
    end do
  end function
end module
