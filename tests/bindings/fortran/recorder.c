/* Stands for the functions of libkindling_c that take arrays, and keeps what they get. */
#include <kindling_c.h>
#include <string.h>

typedef struct record {
  kindling_array array;
  int64_t shape[KINDLING_MAX_RANK], strides[KINDLING_MAX_RANK];
  double first, last; /* elements [0, 0, ...] and [-1, -1, ...] */
} record;

static record records[16];
static int num_records;

static double number_at(const kindling_array* array, int64_t offset) {
  const char* data = (const char*)array->data;
  switch (array->dtype) {
    case KINDLING_FLOAT32: return ((const float*)(const void*)data)[offset];
    case KINDLING_FLOAT64: return ((const double*)(const void*)data)[offset];
    case KINDLING_INT8: return ((const int8_t*)(const void*)data)[offset];
    case KINDLING_INT16: return ((const int16_t*)(const void*)data)[offset];
    case KINDLING_INT32: return ((const int32_t*)(const void*)data)[offset];
    case KINDLING_INT64: return (double)((const int64_t*)(const void*)data)[offset];
    case KINDLING_BOOL: return data[offset];
    default: return -1;
  }
}

static void keep(const kindling_array* array) {
  record* kept = &records[num_records++];
  int64_t last = 0, count = 1;
  kept->array = *array;
  for (int d = 0; d < array->rank; ++d) {
    kept->shape[d] = array->shape[d];
    kept->strides[d] = array->strides[d];
    last += (array->shape[d] - 1) * array->strides[d];
    count *= array->shape[d];
  }
  kept->first = count > 0 ? number_at(array, 0) : 0;
  kept->last = count > 0 ? number_at(array, last) : 0;
}

static kindling_status keep_all(const kindling_array* first, size_t num_first, const kindling_array* second, size_t num_second,
                                const kindling_array* mask) {
  num_records = 0;
  for (size_t i = 0; i < num_first; ++i) keep(&first[i]);
  for (size_t i = 0; i < num_second; ++i) keep(&second[i]);
  if (mask) keep(mask);
  return KINDLING_OK;
}

kindling_status kindling_train_step(kindling_trainer trainer, const kindling_array* inputs, size_t num_inputs,
                                    const kindling_array* targets, size_t num_targets) {
  (void)trainer;
  return keep_all(inputs, num_inputs, targets, num_targets, NULL);
}

kindling_status kindling_train_step_masked(kindling_trainer trainer, const kindling_array* inputs, size_t num_inputs,
                                           const kindling_array* targets, size_t num_targets, const kindling_array* mask) {
  (void)trainer;
  return keep_all(inputs, num_inputs, targets, num_targets, mask);
}

kindling_status kindling_infer(kindling_trainer trainer, const kindling_array* inputs, size_t num_inputs,
                               const kindling_array* outputs, size_t num_outputs) {
  (void)trainer;
  return keep_all(inputs, num_inputs, outputs, num_outputs, NULL);
}

/* Arrays count from 1, as in Fortran. */
int recorded_count(void) { return num_records; }
int recorded_rank(int i) { return records[i - 1].array.rank; }
int recorded_dtype(int i) { return records[i - 1].array.dtype; }
int64_t recorded_shape(int i, int d) { return records[i - 1].shape[d - 1]; }
int64_t recorded_stride(int i, int d) { return records[i - 1].strides[d - 1]; }
double recorded_first(int i) { return records[i - 1].first; }
double recorded_last(int i) { return records[i - 1].last; }
void* recorded_data(int i) { return records[i - 1].array.data; }
