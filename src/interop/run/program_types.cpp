#include "interop/run/program_types.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

constexpr std::array<std::pair<ProgramType, at::ScalarType>, 13> kTypes{{
    {ProgramType::uint8, at::kByte},
    {ProgramType::int8, at::kChar},
    {ProgramType::int16, at::kShort},
    {ProgramType::int32, at::kInt},
    {ProgramType::int64, at::kLong},
    {ProgramType::float16, at::kHalf},
    {ProgramType::float32, at::kFloat},
    {ProgramType::float64, at::kDouble},
    {ProgramType::complex32, at::kComplexHalf},
    {ProgramType::complex64, at::kComplexFloat},
    {ProgramType::complex128, at::kComplexDouble},
    {ProgramType::boolean, at::kBool},
    {ProgramType::bfloat16, at::kBFloat16},
}};

}  // namespace

at::ScalarType scalar_type_of(ProgramType type) {
  return std::ranges::find(kTypes, type, &decltype(kTypes)::value_type::first)->second;
}

ProgramType program_type_of(at::ScalarType type) {
  const auto found = std::ranges::find(kTypes, type, &decltype(kTypes)::value_type::second);
  if (found == kTypes.end())
    throw Error({.place = "a program of operators",
                 .found = std::string("a tensor has dtype ") + c10::toString(type),
                 .wanted = "a dtype of up to 64 bits, such as bool or bfloat16"});
  return found->first;
}

at::MemoryFormat memory_format_of(ProgramMemoryFormat format) {
  switch (format) {
    case ProgramMemoryFormat::contiguous:
      return at::MemoryFormat::Contiguous;
    case ProgramMemoryFormat::channels_last:
      return at::MemoryFormat::ChannelsLast;
    case ProgramMemoryFormat::channels_last_3d:
      return at::MemoryFormat::ChannelsLast3d;
    case ProgramMemoryFormat::preserve:
      break;
  }
  return at::MemoryFormat::Preserve;
}

at::Device device_of(const ProgramDevice& device) {
  try {
    at::Device named(device.type);
    if (device.index) named.set_index(static_cast<at::DeviceIndex>(*device.index));
    return named;
  } catch (const c10::Error&) {
    throw CheckpointError(
        {.place = "a program of operators",
         .found = json_string(device.type.substr(0, 100)) + " is not a supported device type",
         .wanted = "\"cpu\" or \"cuda\""});
  }
}

}  // namespace kindling
