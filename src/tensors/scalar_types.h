#pragma once

#include <c10/core/ScalarType.h>

#include <iterator>
#include <optional>

#include "formats/tensor_types.h"

namespace kindling {

// In the order of TensorType.
inline constexpr at::ScalarType kScalarTypes[] = {
    at::kBool,
    at::kByte,
    at::kChar,
    at::kShort,
    at::kInt,
    at::kLong,
    at::kHalf,
    at::kBFloat16,
    at::kFloat,
    at::kDouble,
    at::kUInt16,
    at::kUInt32,
    at::kUInt64,
    at::kFloat8_e4m3fn,
    at::kFloat8_e4m3fnuz,
    at::kFloat8_e5m2,
    at::kFloat8_e5m2fnuz,
    at::kFloat8_e8m0fnu,
    at::kComplexFloat,
};
static_assert(std::size(kScalarTypes) == std::size(kTensorTypes));

constexpr at::ScalarType scalar_type_of(TensorType type) {
  return kScalarTypes[static_cast<std::size_t>(type)];
}

// Returns nothing for types that no file format has.
constexpr std::optional<TensorType> tensor_type_of(at::ScalarType type) {
  for (const TensorTypeRow& row : kTensorTypes)
    if (scalar_type_of(row.type) == type) return row.type;
  return std::nullopt;
}

}  // namespace kindling
