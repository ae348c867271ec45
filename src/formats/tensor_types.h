#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kindling/formats/safetensors.h"

// The dtypes in all file formats; tensors/scalar_types.h has those of LibTorch.
namespace kindling {

struct TensorTypeRow {
  TensorType type;
  std::size_t bytes;
  std::string_view safetensors;
  std::string_view numpy{};    // without the byte order; empty: NumPy does not have it
  std::string_view storage{};  // in pickles of torch.save: module and name; empty: it has none
  std::uint8_t program = 0;    // ProgramType, which also has complex32 and complex128; 0: it has none
  std::uint8_t idx = 0;        // IdxType; 0: it has none
  std::string_view dtype{};    // in pickles of torch.save, of those without a storage: module and name
};

// In the order of TensorType.
inline constexpr TensorTypeRow kTensorTypes[] = {
    {TensorType::boolean, 1, "BOOL", "b1", "torch BoolStorage", 12},
    {TensorType::uint8, 1, "U8", "u1", "torch ByteStorage", 1, 0x08},
    {TensorType::int8, 1, "I8", "i1", "torch CharStorage", 2, 0x09},
    {TensorType::int16, 2, "I16", "i2", "torch ShortStorage", 3, 0x0b},
    {TensorType::int32, 4, "I32", "i4", "torch IntStorage", 4, 0x0c},
    {TensorType::int64, 8, "I64", "i8", "torch LongStorage", 5},
    {TensorType::float16, 2, "F16", "f2", "torch HalfStorage", 6},
    {TensorType::bfloat16, 2, "BF16", "", "torch BFloat16Storage", 13},
    {TensorType::float32, 4, "F32", "f4", "torch FloatStorage", 7, 0x0d},
    {TensorType::float64, 8, "F64", "f8", "torch DoubleStorage", 8, 0x0e},
    {.type = TensorType::uint16, .bytes = 2, .safetensors = "U16", .numpy = "u2", .dtype = "torch uint16"},
    {.type = TensorType::uint32, .bytes = 4, .safetensors = "U32", .numpy = "u4", .dtype = "torch uint32"},
    {.type = TensorType::uint64, .bytes = 8, .safetensors = "U64", .numpy = "u8", .dtype = "torch uint64"},
    {.type = TensorType::float8_e4m3fn, .bytes = 1, .safetensors = "F8_E4M3", .dtype = "torch float8_e4m3fn"},
    {.type = TensorType::float8_e4m3fnuz,
     .bytes = 1,
     .safetensors = "F8_E4M3FNUZ",
     .dtype = "torch float8_e4m3fnuz"},
    {.type = TensorType::float8_e5m2, .bytes = 1, .safetensors = "F8_E5M2", .dtype = "torch float8_e5m2"},
    {.type = TensorType::float8_e5m2fnuz,
     .bytes = 1,
     .safetensors = "F8_E5M2FNUZ",
     .dtype = "torch float8_e5m2fnuz"},
    {.type = TensorType::float8_e8m0fnu,
     .bytes = 1,
     .safetensors = "F8_E8M0",
     .dtype = "torch float8_e8m0fnu"},
    {TensorType::complex64, 8, "C64", "c8", "torch ComplexFloatStorage", 10},
};

constexpr const TensorTypeRow& row_of(TensorType type) {
  return kTensorTypes[static_cast<std::size_t>(type)];
}

// Returns the row with this value in a column; nullptr if there is none, or the value is empty.
template <class Value>
constexpr const TensorTypeRow* tensor_type_with(Value TensorTypeRow::*column, Value value) {
  for (const TensorTypeRow& row : kTensorTypes)
    if (row.*column == value && value != Value{}) return &row;
  return nullptr;
}

// Returns nullopt for a negative size, or if the number of bytes overflows.
std::optional<std::size_t> bytes_of(TensorType type, std::span<const std::int64_t> shape);

}  // namespace kindling
