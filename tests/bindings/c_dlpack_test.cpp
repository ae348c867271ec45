#include <ATen/dlpack.h>

#include "bindings/c_calls.h"

namespace kindling::test {
namespace {

// A producer's capsule: NumPy's for a(2, 3) of doubles, until a test changes it.
struct Producer {
  Producer() {
    capsule.version = {1, 0};
    capsule.manager_ctx = this;
    capsule.deleter = [](DLManagedTensorVersioned* self) {
      ++static_cast<Producer*>(self->manager_ctx)->num_deleted;
    };
    capsule.flags = 0;
    DLTensor& tensor = capsule.dl_tensor;
    tensor = {};
    tensor.data = numbers;
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 2;
    tensor.dtype = {kDLFloat, 64, 1};
    tensor.shape = shape;
    tensor.strides = strides;
  }
  DLManagedTensorVersioned capsule{};
  double numbers[6] = {1, 2, 3, 4, 5, 6};
  std::int64_t shape[2] = {2, 3}, strides[2] = {1, 2};  // as of Fortran
  int num_deleted = 0;
};

TEST(CDlpack, ACapsuleSharesItsMemoryAndIsDeletedOnce) {
  Producer producer;
  kindling_tensor tensor = nullptr;
  expect_ok(kindling_tensor_from_dlpack(&producer.capsule, 1, &tensor));
  kindling_array array{};
  expect_ok(kindling_tensor_array(tensor, &array));
  EXPECT_EQ(array.data, producer.numbers);
  EXPECT_EQ(array.dtype, KINDLING_FLOAT64);
  EXPECT_EQ(array.strides[1], 2);
  EXPECT_EQ(producer.num_deleted, 0);
  expect_ok(kindling_tensor_free(tensor));
  EXPECT_EQ(producer.num_deleted, 1);
}

TEST(CDlpack, AReadOnlyCapsuleIsCopied) {
  Producer producer;
  producer.capsule.flags = 1;
  kindling_tensor tensor = nullptr;
  expect_ok(kindling_tensor_from_dlpack(&producer.capsule, 1, &tensor));
  kindling_array array{};
  expect_ok(kindling_tensor_array(tensor, &array));
  EXPECT_NE(array.data, producer.numbers);
  EXPECT_EQ(static_cast<const double*>(array.data)[5], 6);
  EXPECT_EQ(producer.num_deleted, 1);  // no longer needed
  expect_ok(kindling_tensor_free(tensor));
}

TEST(CDlpack, AnOffsetIsPartOfTheAddress) {
  Producer producer;
  producer.capsule.dl_tensor.byte_offset = sizeof(double);
  producer.shape[0] = 1;
  producer.shape[1] = 2;
  kindling_tensor tensor = nullptr;
  expect_ok(kindling_tensor_from_dlpack(&producer.capsule, 1, &tensor));
  kindling_array array{};
  expect_ok(kindling_tensor_array(tensor, &array));
  EXPECT_EQ(static_cast<const double*>(array.data)[0], 2);
  expect_ok(kindling_tensor_free(tensor));
  EXPECT_EQ(producer.num_deleted, 1);
}

TEST(CDlpack, GoesBothWaysInBothVersions) {
  OwnArray<float> own(KINDLING_FLOAT32, {2, 2});
  own.numbers = {1, 2, 3, 4};
  const kindling_array view = own.view();
  kindling_tensor tensor = nullptr, back = nullptr;
  expect_ok(kindling_tensor_from_array(&view, &tensor));
  for (const int32_t is_versioned : {0, 1}) {
    void* managed = nullptr;
    expect_ok(kindling_tensor_to_dlpack(tensor, is_versioned, &managed));
    expect_ok(kindling_tensor_from_dlpack(managed, is_versioned, &back));
    kindling_array a{}, b{};
    expect_ok(kindling_tensor_array(tensor, &a));
    expect_ok(kindling_tensor_array(back, &b));
    EXPECT_EQ(a.data, b.data);
    expect_ok(kindling_tensor_free(back));
  }
  expect_ok(kindling_tensor_free(tensor));
}

TEST(CDlpack, CapsulesThatCannotBeRepresentedStayWithTheirProducer) {
  const auto refuse = [](const char* what, const std::function<void(Producer&)>& change) {
    Producer producer;
    change(producer);
    kindling_tensor tensor = nullptr;
    EXPECT_EQ(kindling_tensor_from_dlpack(&producer.capsule, 1, &tensor), KINDLING_DATA_ERROR) << what;
    EXPECT_STRNE(kindling_error_part(KINDLING_EXPECTED), "") << what;
    EXPECT_EQ(producer.num_deleted, 0) << what;
    EXPECT_EQ(tensor, nullptr);
  };
  refuse("version 2", [](Producer& p) { p.capsule.version.major = 2; });
  refuse("rank -1", [](Producer& p) { p.capsule.dl_tensor.ndim = -1; });
  refuse("rank 8", [](Producer& p) { p.capsule.dl_tensor.ndim = 8; });
  refuse("no shape", [](Producer& p) { p.capsule.dl_tensor.shape = nullptr; });
  refuse("no data", [](Producer& p) { p.capsule.dl_tensor.data = nullptr; });
  refuse("a negative size", [](Producer& p) { p.shape[0] = -1; });
  refuse("a negative stride", [](Producer& p) { p.strides[0] = -1; });
  refuse("strides beyond the memory", [](Producer& p) { p.strides[0] = std::int64_t{1} << 62; });
  refuse("complex", [](Producer& p) { p.capsule.dl_tensor.dtype = {kDLComplex, 64, 1}; });
  refuse("uint16", [](Producer& p) { p.capsule.dl_tensor.dtype = {kDLUInt, 16, 1}; });
  refuse("four lanes", [](Producer& p) { p.capsule.dl_tensor.dtype.lanes = 4; });
  refuse("80 bits", [](Producer& p) { p.capsule.dl_tensor.dtype.bits = 80; });
  refuse("a code of later versions", [](Producer& p) { p.capsule.dl_tensor.dtype.code = 17; });
  refuse("another device", [](Producer& p) { p.capsule.dl_tensor.device.device_type = kDLMetal; });
}

}  // namespace
}  // namespace kindling::test
