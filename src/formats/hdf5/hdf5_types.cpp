#include "formats/hdf5/hdf5_types.h"

#include <bit>
#include <cstdint>
#include <string_view>

#include "kindling/base/text.h"

namespace kindling {
namespace {

bool has_other_order(hid_t type) {
  const H5T_order_t host = std::endian::native == std::endian::little ? H5T_ORDER_LE : H5T_ORDER_BE;
  return H5Tget_size(type) > 1 && H5Tget_order(type) != host;
}

std::optional<Hdf5Type> integer_type_of(hid_t type, bool is_signed) {
  using enum TensorType;
  const std::size_t size = H5Tget_size(type);
  const bool is_plain = H5Tget_precision(type) == 8 * size && H5Tget_order(type) != H5T_ORDER_VAX;
  Hdf5Type found{.is_swapped = has_other_order(type), .is_plain = is_plain && std::has_single_bit(size)};
  switch (std::bit_ceil(size)) {
    case 1:
      found.type = is_signed ? int8 : uint8;
      break;
    case 2:
      found.type = is_signed ? int16 : uint16;
      break;
    case 4:
      found.type = is_signed ? int32 : uint32;
      break;
    case 8:
      found.type = is_signed ? int64 : uint64;
      break;
    default:
      return std::nullopt;
  }
  return found;
}

// The layouts of IEEE 754 and bfloat16; the bits of others are not those of a type in memory.
std::optional<Hdf5Type> float_type_of(hid_t type) {
  struct Layout {
    TensorType type;
    std::size_t exponent, mantissa, bias;  // bits
  };
  constexpr Layout kLayouts[] = {{TensorType::float16, 5, 10, 15},
                                 {TensorType::bfloat16, 8, 7, 127},
                                 {TensorType::float32, 8, 23, 127},
                                 {TensorType::float64, 11, 52, 1023}};
  std::size_t sign = 0, exponent_at = 0, exponent = 0, mantissa_at = 0, mantissa = 0;
  if (H5Tget_fields(type, &sign, &exponent_at, &exponent, &mantissa_at, &mantissa) < 0) return std::nullopt;
  const H5T_order_t order = H5Tget_order(type);
  for (const Layout& layout : kLayouts)
    if (exponent == layout.exponent && mantissa == layout.mantissa && H5Tget_ebias(type) == layout.bias &&
        mantissa_at == 0 && exponent_at == mantissa && sign == exponent + mantissa &&
        8 * H5Tget_size(type) == sign + 1 && H5Tget_norm(type) == H5T_NORM_IMPLIED &&
        (order == H5T_ORDER_LE || order == H5T_ORDER_BE))
      return Hdf5Type{.type = layout.type, .is_swapped = has_other_order(type)};
  return std::nullopt;
}

std::string member_name(hid_t type, unsigned index) {
  char* const text = H5Tget_member_name(type, index);
  const std::string name = text == nullptr ? "" : text;
  H5free_memory(text);
  return one_line(name);
}

// h5py's booleans.
bool is_boolean(hid_t type) {
  if (H5Tget_size(type) != 1 || H5Tget_nmembers(type) != 2) return false;
  for (unsigned i = 0; i < 2; ++i) {
    std::int8_t value = -1;
    const std::string name = member_name(type, i);
    if (H5Tget_member_value(type, i, &value) < 0 || name != (value == 0 ? "FALSE" : "TRUE")) return false;
    if (value != 0 && value != 1) return false;
  }
  return true;
}

std::optional<Hdf5Type> enum_type_of(hid_t type) {
  if (is_boolean(type)) return Hdf5Type{.type = TensorType::boolean};
  const Hdf5Id base(H5Tget_super(type), H5Tclose);
  return integer_type_of(base.get(), H5Tget_sign(base.get()) != H5T_SGN_NONE);
}

// Complex numbers of h5py and of others.
std::optional<Hdf5Type> pair_type_of(hid_t type) {
  if (H5Tget_nmembers(type) != 2) return std::nullopt;
  const std::string real = member_name(type, 0), imaginary = member_name(type, 1);
  if (!(real == "r" && imaginary == "i") && !(real == "real" && imaginary == "imag")) return std::nullopt;
  const Hdf5Id first(H5Tget_member_type(type, 0), H5Tclose), second(H5Tget_member_type(type, 1), H5Tclose);
  const std::size_t size = H5Tget_size(first.get());
  if (H5Tequal(first.get(), second.get()) <= 0 || H5Tget_class(first.get()) != H5T_FLOAT ||
      H5Tget_size(type) != 2 * size || H5Tget_member_offset(type, 1) != size)
    return std::nullopt;
  std::optional<Hdf5Type> found = float_type_of(first.get());
  if (found) found->is_pair = true;
  return found;
}

}  // namespace

std::optional<Hdf5Type> hdf5_type_of(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return integer_type_of(type, H5Tget_sign(type) != H5T_SGN_NONE);
    case H5T_BITFIELD: {
      const std::optional<Hdf5Type> found = integer_type_of(type, /*is_signed=*/false);
      return found && found->is_plain ? found : std::nullopt;  // the library does not convert them
    }
    case H5T_FLOAT:
      return float_type_of(type);
    case H5T_ENUM:
      return enum_type_of(type);
    case H5T_COMPOUND:
      return pair_type_of(type);
    default:
      return std::nullopt;
  }
}

std::string hdf5_type_text(hid_t type) {
  const std::size_t size = H5Tget_size(type);
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return "integers of " + std::to_string(size) + " bytes";
    case H5T_FLOAT:
      return "floating-point numbers of " + std::to_string(size) + " bytes";
    case H5T_STRING:
      return "texts";
    case H5T_OPAQUE:
      return "opaque values of " + std::to_string(size) + " bytes";
    case H5T_REFERENCE:
      return "references";
    case H5T_VLEN:
      return "lists of variable length";
    case H5T_ARRAY:
      return "arrays";
    case H5T_TIME:
      return "times";
    case H5T_COMPOUND:
      break;
    default:
      return "values of another type";
  }
  std::string text = "structures of";
  const int count = H5Tget_nmembers(type);
  for (int i = 0; i < count; ++i)
    text += (i == 0 ? " '" : ", '") + member_name(type, static_cast<unsigned>(i)) + "'";
  return text;
}

hid_t native_hdf5_type(TensorType type) {
  switch (type) {
    case TensorType::uint8:
      return H5T_NATIVE_UINT8;
    case TensorType::int16:
      return H5T_NATIVE_INT16;
    case TensorType::uint16:
      return H5T_NATIVE_UINT16;
    case TensorType::int32:
      return H5T_NATIVE_INT32;
    case TensorType::uint32:
      return H5T_NATIVE_UINT32;
    case TensorType::int64:
      return H5T_NATIVE_INT64;
    case TensorType::uint64:
      return H5T_NATIVE_UINT64;
    case TensorType::float32:
      return H5T_NATIVE_FLOAT;
    case TensorType::float64:
      return H5T_NATIVE_DOUBLE;
    default:
      return H5T_NATIVE_INT8;
  }
}

}  // namespace kindling
