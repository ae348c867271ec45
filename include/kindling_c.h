/* Kindling for programs in C, and for all languages that call C: train, evaluate and run models of a config,
 * or of a .pt2 file exported from Python, on arrays of the program. Link libkindling_c.so.
 *
 * Every function returns a status: KINDLING_OK, or a code, and then kindling_error() has a text. No function
 * throws, prints or exits; messages go to the function of kindling_set_log(). Results are written through
 * pointers, only on success.
 *
 * Threads: a trainer is used by one thread at a time; a second one gets KINDLING_BUSY. Only
 * kindling_request_stop() is for any thread at any time. Several trainers may train in threads of their own;
 * what they draw at the same time, such as dropout, they then draw from one generator. Before the program
 * ends, calls of other threads must have returned. After a call with several threads, a child of fork() must
 * not call Kindling.
 *
 * Floating point: each call runs with exceptions masked, rounding to nearest and subnormal numbers, and
 * leaves the environment of its caller (traps, rounding, flush-to-zero, flags), and OpenMP's number of
 * threads, as they were; callbacks run in the environment of the caller. So a program with
 * -ffpe-trap=invalid,zero,overflow needs no care.
 *
 * Handles are checked: a null, freed or foreign one is KINDLING_USAGE_ERROR. Strings are UTF-8 and end with
 * 0.
 *
 * While the version is 0.x, a function keeps its name and its meaning within a minor version. */
#ifndef KINDLING_C_H
#define KINDLING_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KINDLING_C_API __attribute__((visibility("default")))

/* --- Status and errors --- */

typedef int32_t kindling_status;

enum {
  KINDLING_OK = 0,
  KINDLING_ERROR = 1,             /* all other failures */
  KINDLING_CONFIG_ERROR = 2,      /* a config or a setting that cannot be used */
  KINDLING_DATA_ERROR = 3,        /* data that are missing, broken, or do not fit the model */
  KINDLING_CHECKPOINT_ERROR = 4,  /* a file of weights or of a run that is missing, broken, or does not fit */
  KINDLING_DEVICE_ERROR = 5,      /* a device that is missing or cannot be used */
  KINDLING_DISTRIBUTED_ERROR = 6, /* ranks that disagree, or a lost rank */
  KINDLING_USAGE_ERROR = 7,       /* a wrong call: null, a freed handle, an unknown number */
  KINDLING_BUSY = 8,              /* another thread uses this trainer */
  KINDLING_CALLBACK_ERROR = 9     /* a callback has returned something else than 0 */
};

enum { KINDLING_LOCATION = 0, KINDLING_FOUND = 1, KINDLING_EXPECTED = 2, KINDLING_HINT = 3 };

/* Returns the text of the latest error of the calling thread: one line with location, what was found, what
 * was expected, and a hint; for a config, a line for each of its errors. "" if there was none. Valid until
 * the thread's next call that fails. */
KINDLING_C_API const char* kindling_error(void);
/* Returns one part of it; "" if the error does not have it, and for an unknown part. */
KINDLING_C_API const char* kindling_error_part(int32_t part);

/* Sets the error of the calling thread and returns `status`, for bindings of other languages that check
 * arguments themselves; parts may be NULL. */
KINDLING_C_API kindling_status kindling_set_error(kindling_status status, const char* location,
                                                  const char* found, const char* expected, const char* hint);

/* Returns the version of the library, such as "0.1.0". */
KINDLING_C_API const char* kindling_version(void);

enum { KINDLING_LOG_DEBUG = 0, KINDLING_LOG_INFO = 1, KINDLING_LOG_WARNING = 2, KINDLING_LOG_ERROR = 3 };

/* Calls `function` with every message of `level` and above, on the thread that logs, also on others than the
 * calling one; NULL: silent, as at the start. For the whole process. The function must not call Kindling. */
typedef void (*kindling_log_function)(int32_t level, const char* message, void* user_data);
KINDLING_C_API kindling_status kindling_set_log(kindling_log_function function, int32_t level,
                                                void* user_data);

/* Writes the number of GPUs that can be used; 0: the CPU is used. */
KINDLING_C_API kindling_status kindling_device_count(int32_t* count);

/* --- Arrays --- */

enum {
  KINDLING_FLOAT32 = 1,
  KINDLING_FLOAT64 = 2,
  KINDLING_FLOAT16 = 3,
  KINDLING_BFLOAT16 = 4,
  KINDLING_INT8 = 5,
  KINDLING_INT16 = 6,
  KINDLING_INT32 = 7,
  KINDLING_INT64 = 8,
  KINDLING_UINT8 = 9,
  KINDLING_BOOL = 10 /* one byte, 0 or 1, as C's _Bool and Fortran's logical(c_bool) */
};

enum { KINDLING_CPU = 0, KINDLING_CUDA = 1 };

#define KINDLING_MAX_RANK 7

/* An array of the program, which Kindling borrows: it is read, or written, only within the call, unless the
 * function says otherwise. `shape` and `strides` have `rank` numbers and are read within the call only.
 * Dimension 0 counts the samples. */
typedef struct kindling_array {
  void* data; /* the element [0, 0, ...]; may be NULL only if the array has no elements */
  const int64_t* shape;
  const int64_t* strides; /* in elements, may be negative; NULL: row-major, without gaps */
  int32_t rank;           /* 0 to KINDLING_MAX_RANK */
  int32_t dtype;          /* KINDLING_FLOAT32 ... */
  int32_t device;       /* KINDLING_CPU, or KINDLING_CUDA for a device pointer, such as use_device gives it */
  int32_t device_index; /* of a GPU */
} kindling_array;

/* How many arrays of the calling thread were borrowed as they are, and how many were copied on the host
 * before use: because of a negative stride, or into the dtype of the model. */
typedef struct kindling_array_counts {
  int64_t borrowed, copied_for_strides, copied_for_dtype;
} kindling_array_counts;
KINDLING_C_API kindling_status kindling_count_arrays(kindling_array_counts* counts);

/* --- Groups of processes --- */

typedef struct kindling_group_s* kindling_group;

/* Joins `size` processes that train one model. Collective: returns when all have joined. The processes meet
 * at a TCP port of rank 0's machine. `local_rank`: the index among the ranks of this machine, and of its GPU.
 * `timeout_s`: after so many seconds without an answer a rank counts as lost; 0: 1800. The group is used by
 * one trainer at a time. */
KINDLING_C_API kindling_status kindling_group_join(int64_t rank, int64_t size, int64_t local_rank,
                                                   const char* address, int32_t port, double timeout_s,
                                                   kindling_group* group);
/* Writes an address of this machine that other machines can reach, and a TCP port that is free now: for rank
 * 0, which sends both to the others. `address` has room for `capacity` bytes (256 is enough). */
KINDLING_C_API kindling_status kindling_free_address(char* address, size_t capacity, int32_t* port);
/* Frees the handle; the group itself lives as long as a trainer uses it. */
KINDLING_C_API kindling_status kindling_group_free(kindling_group group);

/* --- Trainers --- */

typedef struct kindling_trainer_s* kindling_trainer;

/* Make a trainer with its model. Settings are those of a config file (docs/reference/configuration.md), of
 * which [model] is required: model.name = "mlp" for a model that Kindling ships, or model.name = "exported"
 * and model.file = "net.pt2" for one of Python's. [data] is only for kindling_fit(), kindling_validate() and
 * kindling_predict(). Keys of [run] and of searches have no effect.
 *
 * `settings`: lines such as "optimizer.lr=0.01", which come after the file or text; may be NULL if `count` is
 * 0. `group`: the ranks that train together; NULL: none. In the functions with a text or file, relative paths
 * are relative to the current directory, or to that of the file. */
KINDLING_C_API kindling_status kindling_trainer_create(const char* const* settings, size_t count,
                                                       kindling_group group, kindling_trainer* trainer);
KINDLING_C_API kindling_status kindling_trainer_from_text(const char* toml, const char* const* settings,
                                                          size_t count, kindling_group group,
                                                          kindling_trainer* trainer);
KINDLING_C_API kindling_status kindling_trainer_from_file(const char* path, const char* const* settings,
                                                          size_t count, kindling_group group,
                                                          kindling_trainer* trainer);
/* Frees a trainer and its model; NULL does nothing. While another thread is in a call with it: KINDLING_BUSY.
 */
KINDLING_C_API kindling_status kindling_trainer_free(kindling_trainer trainer);

/* --- Steps of the program's own loop --- */

/* Trains one step on a batch: `inputs` of the model, then its targets, with equal numbers of samples. Returns
 * without waiting for a GPU. The arrays may be changed as soon as it returns, those of a GPU in the order of
 * its current stream. Floating-point inputs and targets are converted to the model's dtype, integer targets
 * of classes to int64; a regression's targets have the shape of the outputs. The first call fixes the widths
 * of models that take any. With [data], arrays go through the transforms of its batches. A model that changes
 * its inputs in place changes the arrays.
 *
 * With a group it is collective: a rank without samples passes arrays whose first dimension is 0 and takes
 * part without effect. After an error on one rank, its steps and those of the others no longer belong
 * together. */
KINDLING_C_API kindling_status kindling_train_step(kindling_trainer trainer, const kindling_array* inputs,
                                                   size_t num_inputs, const kindling_array* targets,
                                                   size_t num_targets);
/* The same on those samples only for which `mask`, KINDLING_BOOL [samples] on the host, is true: cells that
 * count. Copies them. */
KINDLING_C_API kindling_status kindling_train_step_masked(kindling_trainer trainer,
                                                          const kindling_array* inputs, size_t num_inputs,
                                                          const kindling_array* targets, size_t num_targets,
                                                          const kindling_array* mask);
/* Waits for the loss of the latest step on the samples of this rank and writes it, also if it is not finite;
 * NaN if it had no samples. */
KINDLING_C_API kindling_status kindling_loss_value(kindling_trainer trainer, double* loss);
/* Ends an epoch of the program's own loop: the means of its steps become metrics, epoch callbacks are called,
 * and schedules that count epochs continue. */
KINDLING_C_API kindling_status kindling_finish_epoch(kindling_trainer trainer);
/* Writes 1 if max_epochs, max_steps or a stop has been reached, or the run has diverged, else 0. Does not
 * wait: a divergence is seen a step later, on a GPU a few. */
KINDLING_C_API kindling_status kindling_is_done(kindling_trainer trainer, int32_t* is_done);
/* Logs a value beside those of the model, before the step that it belongs to; its mean is a metric. */
KINDLING_C_API kindling_status kindling_log_value(kindling_trainer trainer, const char* name, double value);

/* --- Whole fits and evaluation --- */

enum { KINDLING_FINISHED = 0, KINDLING_STOPPED = 1, KINDLING_DIVERGED = 2 };

/* The result of a fit. */
typedef struct kindling_fit_result {
  int32_t status;        /* KINDLING_FINISHED ... */
  int64_t epochs;        /* finished ones */
  int64_t global_step;   /* optimizer steps */
  int64_t diverged_step; /* the step that was not finite; -1: none */
} kindling_fit_result;

/* Before kindling_fit(): saves checkpoints into `folder` as [checkpoint] says, and at the end of the fit,
 * which continues from the latest one that is there. A loop of the program's own uses kindling_save(). */
KINDLING_C_API kindling_status kindling_save_into(kindling_trainer trainer, const char* folder);
/* Trains on [data] until max_epochs or max_steps; after kindling_resume() from there. After steps or another
 * fit it is a new run, which starts from the current weights. `result` may be NULL. */
KINDLING_C_API kindling_status kindling_fit(kindling_trainer trainer, kindling_fit_result* result);
/* Measure the model on the validation or test samples of [data]; the results are metrics. */
KINDLING_C_API kindling_status kindling_validate(kindling_trainer trainer);
KINDLING_C_API kindling_status kindling_test(kindling_trainer trainer);
/* Runs the model on arrays, in evaluation mode and without gradients, and writes its outputs into arrays of
 * the program, which have the shapes of the outputs, any strides, and any floating-point dtype; integers have
 * the dtype of the output. Either all are written or none. Outputs may have the memory of inputs. Waits,
 * except for outputs on a GPU, which come in the order of its current stream. Uses the model's own weights,
 * not averages of [ema]. With a group, the first call for a trainer is collective, and a rank without samples
 * writes nothing. */
KINDLING_C_API kindling_status kindling_infer(kindling_trainer trainer, const kindling_array* inputs,
                                              size_t num_inputs, const kindling_array* outputs,
                                              size_t num_outputs);

/* Metrics of the latest epoch, fit, validation or test, by name: "train_loss", "val_acc" ... */
KINDLING_C_API kindling_status kindling_metric(kindling_trainer trainer, const char* name, double* value);
KINDLING_C_API kindling_status kindling_metric_count(kindling_trainer trainer, size_t* count);
/* Writes the name of a metric, in alphabetical order; valid until the metrics change. */
KINDLING_C_API kindling_status kindling_metric_name(kindling_trainer trainer, size_t index,
                                                    const char** name);

/* The position of a run. */
typedef struct kindling_progress {
  int64_t epoch, batch, global_step; /* all from 0: epochs finished, batches of this epoch, optimizer steps */
  int64_t accumulated_batches;       /* since the latest optimizer step; a run is saved where they are 0 */
} kindling_progress;
KINDLING_C_API kindling_status kindling_get_progress(kindling_trainer trainer, kindling_progress* progress);
/* Writes the learning rate of the latest step. */
KINDLING_C_API kindling_status kindling_learning_rate(kindling_trainer trainer, double* rate);
/* Requests that the running fit ends after its current step; also from another
 * thread. */
KINDLING_C_API kindling_status kindling_request_stop(kindling_trainer trainer);

/* --- Saved state --- */

/* Saves the whole state of the run, durably; the file is replaced at once or not at all. Not within
 * accumulate_grad_batches, see kindling_progress. With a group it is collective, and rank 0 writes. */
KINDLING_C_API kindling_status kindling_save(kindling_trainer trainer, const char* path);
/* Restores it: the next step is bit-identical to the one that would have followed. After an
 * error the run is as before. */
KINDLING_C_API kindling_status kindling_resume(kindling_trainer trainer, const char* path);
/* Save and load weights alone: .safetensors, .pt (a state dict of Python's), and .pt2 for an exported model.
 */
KINDLING_C_API kindling_status kindling_save_weights(kindling_trainer trainer, const char* path);
KINDLING_C_API kindling_status kindling_load_weights(kindling_trainer trainer, const char* path);

/* --- Callbacks --- */

enum {
  KINDLING_ON_FIT_START = 1,
  KINDLING_ON_BATCH_END = 2, /* every batch; must be quick */
  KINDLING_ON_VALIDATION_END = 4,
  KINDLING_ON_EPOCH_END = 8, /* the metrics are those of the epoch */
  KINDLING_ON_FIT_END = 16
};

/* Returns 0 to continue; anything else ends the call in progress with KINDLING_CALLBACK_ERROR, as an
 * exception of C++ does. It must return: no longjmp, no end of the thread. May call functions of this trainer
 * that read, infer or evaluate, kindling_save() at KINDLING_ON_EPOCH_END, and kindling_request_stop(). A loop
 * of the program's own gets KINDLING_ON_BATCH_END and KINDLING_ON_EPOCH_END. */
typedef int32_t (*kindling_event_function)(kindling_trainer trainer, int32_t event, void* user_data);
/* Calls `function` at the events, a sum of the above; NULL: at none. Replaces the previous one. */
KINDLING_C_API kindling_status kindling_set_callback(kindling_trainer trainer, int32_t events,
                                                     kindling_event_function function, void* user_data);

/* --- Tensors --- */

typedef struct kindling_tensor_s* kindling_tensor;

/* Make a tensor that Kindling owns: as a copy of an array, or of a DLPack capsule's pointer, DLManagedTensor
 * or DLManagedTensorVersioned (`is_versioned`), major version 1, whose memory it shares and which it deletes
 * when the tensor is freed; one that is marked read-only is copied. On an error the capsule stays the
 * caller's. */
KINDLING_C_API kindling_status kindling_tensor_from_array(const kindling_array* array,
                                                          kindling_tensor* tensor);
KINDLING_C_API kindling_status kindling_tensor_from_dlpack(void* managed, int32_t is_versioned,
                                                           kindling_tensor* tensor);
/* Returns the outputs of the model for all samples of [data]'s prediction set, on the host. */
KINDLING_C_API kindling_status kindling_predict(kindling_trainer trainer, kindling_tensor* outputs);
/* Returns the first output of the model for arrays, as kindling_infer(), on the host. */
KINDLING_C_API kindling_status kindling_infer_tensor(kindling_trainer trainer, const kindling_array* inputs,
                                                     size_t num_inputs, kindling_tensor* output);
/* Describes the memory of a tensor, which both share; valid until the tensor is freed. */
KINDLING_C_API kindling_status kindling_tensor_array(kindling_tensor tensor, kindling_array* array);
/* Writes a new DLManagedTensorVersioned (or DLManagedTensor) that shares the memory; whoever gets it calls
 * its deleter. */
KINDLING_C_API kindling_status kindling_tensor_to_dlpack(kindling_tensor tensor, int32_t is_versioned,
                                                         void** managed);
KINDLING_C_API kindling_status kindling_tensor_free(kindling_tensor tensor);

#ifdef __cplusplus
}
#endif

#endif
