#include "interop/run/program_types.h"

#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "tensors/scalar_types.h"

namespace kindling {
at::ScalarType scalar_type_of(ProgramType type) {
  if (type == ProgramType::complex32) return at::kComplexHalf;
  if (type == ProgramType::complex128) return at::kComplexDouble;
  return scalar_type_of(tensor_type_with(&TensorTypeRow::program, static_cast<std::uint8_t>(type))->type);
}

ProgramType program_type_of(at::ScalarType type) {
  if (type == at::kComplexHalf) return ProgramType::complex32;
  if (type == at::kComplexDouble) return ProgramType::complex128;
  const std::optional<TensorType> known = tensor_type_of(type);
  if (!known || row_of(*known).program == 0)
    throw Error({.place = "a program of operators",
                 .found = std::string("a tensor has dtype ") + c10::toString(type),
                 .wanted = "a dtype of up to 64 bits, such as bool or bfloat16"});
  return static_cast<ProgramType>(row_of(*known).program);
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
