/* Turns Fortran's array descriptors into arrays of kindling_c.h, for the module kindling of kindling.f90. Compiled by the
 * program that uses the module, because descriptors belong to a compiler: gfortran 12 or newer.
 *
 * The procedures with arrays are called here without a Fortran procedure in between: gfortran would pack sections of
 * components, t(:)%y, into a hidden copy on the way through assumed-rank dummies. */
#include <ISO_Fortran_binding.h>
#include <kindling_c.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stops the program with the text of the latest error; in kindling.f90. */
void kindling_fortran_error_stop(void);

enum { MAX_ARRAYS = 4 };

/* An array with the memory for its shape and strides, and for the bytes of a default logical. */
typedef struct view {
  kindling_array array;
  int64_t shape[KINDLING_MAX_RANK], strides[KINDLING_MAX_RANK];
  void* bytes;
} view;

/* The arrays of one kind of a call, such as its inputs. */
typedef struct views {
  view items[MAX_ARRAYS];
  kindling_array arrays[MAX_ARRAYS];
  size_t count;
} views;

static _Thread_local int64_t logicals_copied;

int64_t kindling_fortran_logicals_copied(void) { return logicals_copied; }

static kindling_status refuse(const char* name, const char* found, const char* expected, const char* hint) {
  return kindling_set_error(KINDLING_USAGE_ERROR, name, found, expected, hint);
}

static bool is_logical(const CFI_cdesc_t* array) { return (array->type & CFI_type_mask) == CFI_type_Logical; }

/* Returns 0 for types that Kindling does not know. */
static int32_t dtype_of(const CFI_cdesc_t* array) {
  if (is_logical(array)) return KINDLING_BOOL;
  switch (array->type) {
    case CFI_type_float: return KINDLING_FLOAT32;
    case CFI_type_double: return KINDLING_FLOAT64;
    case CFI_type_int8_t: return KINDLING_INT8;
    case CFI_type_int16_t: return KINDLING_INT16;
    case CFI_type_int32_t: return KINDLING_INT32;
    case CFI_type_int64_t: return KINDLING_INT64;
    default: return 0;
  }
}

/* Descriptors of absent arguments may be NULL or have a base of NULL, those of unallocated arrays have a base of NULL;
 * their extents mean nothing. */
static kindling_status check(const CFI_cdesc_t* array, const char* name) {
  if (!array || !array->base_addr)
    return refuse(name, "the array is not allocated, not associated or not present", "an array", "allocate it before the call");
  if (!dtype_of(array))
    return refuse(name, "an array of a type that Kindling does not support",
                  "real(real32), real(real64), integer of 1 to 8 bytes, or logical", "copy the array to one of these types");
  if (array->rank > KINDLING_MAX_RANK) return refuse(name, "an array of rank 8 or more", "rank 0 to 7", "reshape it");
  for (int d = 0; d < array->rank; ++d) {
    if (array->dim[d].extent < 0)
      return refuse(name, "an assumed-size array, whose last extent is unknown", "an array with a shape",
                    "pass a section with bounds, such as a(:, 1:n)");
    if (array->dim[d].extent > 1 && array->dim[d].sm % (CFI_index_t)array->elem_len != 0)
      return refuse(name, "elements whose distance in memory is not a multiple of their size", "whole elements as strides",
                    "pass a copy, such as (t%y) in parentheses");
  }
  return KINDLING_OK;
}

static char* copy_logicals(const view* from, int dim, const char* element, size_t size, char* to) {
  if (dim == from->array.rank) {
    *to = 0;
    for (size_t i = 0; i < size; ++i) *to |= element[i] != 0;
    return to + 1;
  }
  for (int64_t i = 0; i < from->shape[dim]; ++i)
    to = copy_logicals(from, dim + 1, element + i * from->strides[dim] * (int64_t)size, size, to);
  return to;
}

/* Replaces logicals of more than one byte by a row-major copy with a byte each. */
static kindling_status convert_logicals(view* view, size_t size, const char* name) {
  int64_t count = 1;
  for (int d = 0; d < view->array.rank; ++d) count *= view->shape[d];
  view->bytes = malloc(count > 0 ? (size_t)count : 1);
  if (!view->bytes) return refuse(name, "no memory for a copy", "a byte for each logical", "use logical(c_bool)");
  copy_logicals(view, 0, view->array.data, size, view->bytes);
  view->array.data = view->bytes;
  for (int64_t d = view->array.rank - 1, stride = 1; d >= 0; stride *= view->shape[d--]) view->strides[d] = stride;
  ++logicals_copied;
  return KINDLING_OK;
}

/* a(nx, ny) arrives as [ny, nx]. */
static kindling_status open_view(const CFI_cdesc_t* array, const char* name, view* view) {
  const kindling_status status = check(array, name);
  if (status != KINDLING_OK) return status;
  view->array = (kindling_array){.data = array->base_addr, .shape = view->shape, .strides = view->strides,
                                 .rank = array->rank, .dtype = dtype_of(array), .device = KINDLING_CPU};
  for (int d = 0; d < array->rank; ++d) {
    const CFI_dim_t* dim = &array->dim[array->rank - 1 - d];
    view->shape[d] = dim->extent;
    view->strides[d] = dim->sm / (CFI_index_t)array->elem_len;
  }
  return is_logical(array) && array->elem_len > 1 ? convert_logicals(view, array->elem_len, name) : KINDLING_OK;
}

/* Merges the dimensions `first` to the last into one; false if one stride does not reach all elements. */
static bool merge_dims(view* view, int first) {
  int64_t count = 1, stride = 1;
  bool is_empty = false, is_regular = true;
  for (int d = view->array.rank - 1; d >= first; --d) {
    if (view->shape[d] > 1) {
      if (count == 1) stride = view->strides[d];
      is_regular = is_regular && view->strides[d] == stride * count;
    }
    is_empty = is_empty || view->shape[d] == 0;
    count *= view->shape[d];
  }
  view->shape[first] = count;
  view->strides[first] = stride;
  view->array.rank = first + 1;
  return is_regular || is_empty;
}

/* Makes samples of the cells of a field: [channels, ny, nx] becomes [cells, channels]; a mask [ny, nx] becomes [cells]. */
static kindling_status merge_cells(view* view, int has_channels, const char* name) {
  if (view->array.rank < 1 + has_channels)
    return refuse(name, "an array without a dimension of cells", has_channels ? "a(cells ..., channels)" : "mask(cells ...)",
                  "give the array one more dimension");
  if (!merge_dims(view, has_channels))
    return refuse(name, "a section whose cells have no common stride in memory", "cells that follow each other at equal distances",
                  "pass the whole field with a mask, or a copy of the section");
  if (has_channels) {
    const int64_t channels = view->shape[0], stride = view->strides[0];
    view->shape[0] = view->shape[1], view->strides[0] = view->strides[1];
    view->shape[1] = channels, view->strides[1] = stride;
  }
  return KINDLING_OK;
}

/* `others` are the optional arrays after the first; once one is absent, those after it must be absent too. */
static kindling_status open_views(const CFI_cdesc_t* first, const CFI_cdesc_t* const* others, const char* name, bool is_cells,
                                  views* views) {
  const CFI_cdesc_t* arrays[MAX_ARRAYS] = {first, others[0], others[1], others[2]};
  kindling_status status = KINDLING_OK;
  for (int i = 0; i < MAX_ARRAYS && status == KINDLING_OK && (i == 0 || arrays[i]); ++i) {
    char numbered[32];
    snprintf(numbered, sizeof numbered, i == 0 ? "%s" : "%s%d", name, i + 1);
    view* view = &views->items[views->count++];
    status = open_view(arrays[i], numbered, view);
    if (status == KINDLING_OK && is_cells) status = merge_cells(view, 1, numbered);
    views->arrays[i] = view->array;
  }
  for (size_t i = views->count; i < MAX_ARRAYS && status == KINDLING_OK; ++i)
    if (arrays[i]) status = refuse(name, "an array after an absent one", "arrays without gaps in their numbers", NULL);
  return status;
}

static void close_views(views* views) {
  for (size_t i = 0; i < views->count; ++i) free(views->items[i].bytes);
}

typedef struct call {
  kindling_trainer trainer;
  const CFI_cdesc_t *input, *result; /* `result`: the target, or the output */
  const CFI_cdesc_t *inputs[MAX_ARRAYS - 1], *results[MAX_ARRAYS - 1];
  const CFI_cdesc_t* mask;
  bool is_cells, has_mask;
} call;

static kindling_status train(const call* call) {
  views inputs = {0}, targets = {0};
  view mask = {0};
  kindling_status status = open_views(call->input, call->inputs, "input", call->is_cells, &inputs);
  if (status == KINDLING_OK) status = open_views(call->result, call->results, "target", call->is_cells, &targets);
  if (status == KINDLING_OK && call->has_mask) status = open_view(call->mask, "mask", &mask);
  if (status == KINDLING_OK && call->has_mask && call->is_cells) status = merge_cells(&mask, 0, "mask");
  if (status == KINDLING_OK)
    status = call->has_mask ? kindling_train_step_masked(call->trainer, inputs.arrays, inputs.count, targets.arrays,
                                                         targets.count, &mask.array)
                            : kindling_train_step(call->trainer, inputs.arrays, inputs.count, targets.arrays, targets.count);
  close_views(&inputs);
  close_views(&targets);
  free(mask.bytes);
  return status;
}

static kindling_status infer(const call* call) {
  views inputs = {0}, outputs = {0};
  kindling_status status = open_views(call->input, call->inputs, "input", call->is_cells, &inputs);
  if (status == KINDLING_OK) status = open_views(call->result, call->results, "output", call->is_cells, &outputs);
  for (size_t i = 0; i < outputs.count && status == KINDLING_OK; ++i)
    if (outputs.items[i].bytes) status = refuse("output", "an array of logicals", "an array of reals", NULL);
  if (status == KINDLING_OK)
    status = kindling_infer(call->trainer, inputs.arrays, inputs.count, outputs.arrays, outputs.count);
  close_views(&inputs);
  close_views(&outputs);
  return status;
}

/* Ends a call in Fortran's way: errmsg is padded or truncated. For kindling_mpi_fortran.c, too. */
void kindling_fortran_finish(kindling_status status, int32_t* stat, const CFI_cdesc_t* errmsg) {
  if (stat) *stat = status;
  if (status == KINDLING_OK) return;
  if (errmsg && errmsg->base_addr) {
    const char* text = kindling_error();
    const size_t length = strlen(text);
    memset(errmsg->base_addr, ' ', errmsg->elem_len);
    memcpy(errmsg->base_addr, text, length < errmsg->elem_len ? length : errmsg->elem_len);
  }
  if (!stat) kindling_fortran_error_stop();
}

/* The procedures of the module. Fortran passes the trainer by reference. */

#define OTHERS                                                                                                   \
  int32_t *stat, CFI_cdesc_t *errmsg, const CFI_cdesc_t *input2, const CFI_cdesc_t *input3, const CFI_cdesc_t *input4, \
      const CFI_cdesc_t *result2, const CFI_cdesc_t *result3, const CFI_cdesc_t *result4
#define CALL(cells, ...)                                                                                            \
  &(call) {                                                                                                         \
    .trainer = *trainer, .input = input, .result = result, .inputs = {input2, input3, input4},                      \
    .results = {result2, result3, result4}, .is_cells = cells, __VA_ARGS__                                          \
  }

void kindling_fortran_train_step(const kindling_trainer* trainer, const CFI_cdesc_t* input, const CFI_cdesc_t* result, OTHERS) {
  kindling_fortran_finish(train(CALL(false, .has_mask = false)), stat, errmsg);
}

void kindling_fortran_train_step_masked(const kindling_trainer* trainer, const CFI_cdesc_t* input, const CFI_cdesc_t* result,
                                        const CFI_cdesc_t* mask, OTHERS) {
  kindling_fortran_finish(train(CALL(false, .has_mask = true, .mask = mask)), stat, errmsg);
}

void kindling_fortran_train_cells(const kindling_trainer* trainer, const CFI_cdesc_t* input, const CFI_cdesc_t* result, OTHERS) {
  kindling_fortran_finish(train(CALL(true, .has_mask = false)), stat, errmsg);
}

void kindling_fortran_train_cells_masked(const kindling_trainer* trainer, const CFI_cdesc_t* input, const CFI_cdesc_t* result,
                                         const CFI_cdesc_t* mask, OTHERS) {
  kindling_fortran_finish(train(CALL(true, .has_mask = true, .mask = mask)), stat, errmsg);
}

void kindling_fortran_infer(const kindling_trainer* trainer, const CFI_cdesc_t* input, const CFI_cdesc_t* result, OTHERS) {
  kindling_fortran_finish(infer(CALL(false, .has_mask = false)), stat, errmsg);
}

void kindling_fortran_infer_cells(const kindling_trainer* trainer, const CFI_cdesc_t* input, const CFI_cdesc_t* result, OTHERS) {
  kindling_fortran_finish(infer(CALL(true, .has_mask = false)), stat, errmsg);
}
