#include "formats/netcdf/netcdf_packing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "formats/tensor_types.h"
#include "kindling/base/error.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

// Calls `use` with a value of the type.
template <class Use>
auto with_type(TensorType type, Use use) {
  switch (type) {
    case TensorType::int8:
      return use(std::int8_t{});
    case TensorType::uint8:
      return use(std::uint8_t{});
    case TensorType::int16:
      return use(std::int16_t{});
    case TensorType::uint16:
      return use(std::uint16_t{});
    case TensorType::int32:
      return use(std::int32_t{});
    case TensorType::uint32:
      return use(std::uint32_t{});
    case TensorType::int64:
      return use(std::int64_t{});
    case TensorType::uint64:
      return use(std::uint64_t{});
    case TensorType::float32:
      return use(float{});
    default:
      return use(double{});
  }
}

bool is_floating(TensorType type) { return type == TensorType::float32 || type == TensorType::float64; }

// The type of as many bits, without or with a sign.
TensorType with_sign(TensorType type, bool is_signed) {
  constexpr std::pair<TensorType, TensorType> kPairs[] = {{TensorType::int8, TensorType::uint8},
                                                          {TensorType::int16, TensorType::uint16},
                                                          {TensorType::int32, TensorType::uint32},
                                                          {TensorType::int64, TensorType::uint64}};
  for (const auto& [with, without] : kPairs)
    if (type == with || type == without) return is_signed ? with : without;
  return type;
}

// The library fills unwritten parts with it (NC_FILL_BYTE and so on).
long double default_fill(TensorType type) {
  constexpr float kFloat = 9.9692099683868690e+36F;
  switch (type) {
    case TensorType::int8:
      return -127;
    case TensorType::uint8:
      return 255;
    case TensorType::int16:
      return -32767;
    case TensorType::uint16:
      return 65535;
    case TensorType::int32:
      return -2147483647;
    case TensorType::uint32:
      return 4294967295U;
    case TensorType::int64:
      return -9223372036854775806LL;
    case TensorType::uint64:
      return 18446744073709551614ULL;
    default:
      return kFloat;
  }
}

// float32 has all integers of 16 bits.
TensorType float_for(TensorType type) {
  return row_of(type).bytes <= 2 || type == TensorType::float32 ? TensorType::float32 : TensorType::float64;
}

// The type of a product or sum of values and an attribute, by the rules of NumPy 2.
TensorType promoted(TensorType values, TensorType attribute) {
  return attribute == TensorType::float32 ? float_for(values) : TensorType::float64;
}

const NetcdfAttribute* find(const NetcdfAttributes& attributes, const char* name) {
  const auto found = attributes.find(name);
  return found == attributes.end() ? nullptr : &found->second;
}

}  // namespace

NetcdfPacking::NetcdfPacking(TensorType stored, const NetcdfAttributes& attributes, NetcdfDecoding decoding,
                             bool is_filled, std::string place)
    : in_file_(stored), stored_(stored), type_(stored), place_(std::move(place)) {
  const NetcdfAttribute* const has_sign = find(attributes, "_Unsigned");
  const std::string sign = has_sign == nullptr ? "" : has_sign->text;
  if (sign == "true" || (sign == "True" && decoding == NetcdfDecoding::netcdf4))
    stored_ = with_sign(stored, /*is_signed=*/false);
  if (sign == "false" && decoding == NetcdfDecoding::xarray) stored_ = with_sign(stored, /*is_signed=*/true);
  const bool may_be_unwritten = is_filled || row_of(stored).bytes > 1;  // as netCDF4 decides
  if (decoding == NetcdfDecoding::netcdf4 && may_be_unwritten && find(attributes, "_FillValue") == nullptr) {
    // It is compared as a number: none of a value whose sign was removed.
    const long double fill = default_fill(stored);
    if (fill >= 0 || stored == stored_) fill_ = fill;
  }
  read_marks(attributes, decoding);
  scale_ = read_factor(attributes, "scale_factor");
  offset_ = read_factor(attributes, "add_offset");
  choose_type(attributes, decoding);
}

bool NetcdfPacking::is_packed() const noexcept {
  return has_marks_ || fill_ || scale_ || offset_ || type_ != stored_;
}

std::optional<long double> NetcdfPacking::read_factor(const NetcdfAttributes& attributes,
                                                      const char* name) const {
  const NetcdfAttribute* const factor = find(attributes, name);
  if (factor == nullptr) return std::nullopt;
  if (factor->numbers.size() == 1) return factor->numbers.front();
  throw DataError({.place = place_ + ", attribute '" + name + "'",
                   .found = factor->numbers.empty() ? "the text '" + one_line(factor->text) + "'"
                                                    : std::to_string(factor->numbers.size()) + " numbers",
                   .wanted = "one number"});
}

std::optional<long double> NetcdfPacking::as_stored(long double number) const {
  const bool is_in_file = with_type(in_file_, [&](auto type) {
    using Value = decltype(type);
    using Limits = std::numeric_limits<Value>;
    if (std::isnan(number)) return false;
    if constexpr (!std::is_floating_point_v<Value>)
      if (number < static_cast<long double>(Limits::lowest()) ||
          number > static_cast<long double>(Limits::max()))
        return false;
    return static_cast<long double>(static_cast<Value>(number)) == number;
  });
  if (!is_in_file) return std::nullopt;
  if (stored_ == in_file_) return number;
  // Attributes have the sign of the file.
  const long double num_values = std::ldexp(1.0L, static_cast<int>(8 * row_of(stored_).bytes));
  const bool is_signed = with_type(stored_, [](auto type) { return std::is_signed_v<decltype(type)>; });
  if (!is_signed && number < 0) return number + num_values;
  if (is_signed && number >= num_values / 2) return number - num_values;
  return number;
}

void NetcdfPacking::read_marks(const NetcdfAttributes& attributes, NetcdfDecoding decoding) {
  for (const char* name : {"_FillValue", "missing_value"}) {
    const NetcdfAttribute* const marks = find(attributes, name);
    if (marks == nullptr || marks->numbers.empty()) continue;
    has_marks_ = true;
    for (const long double mark : marks->numbers) {
      if (const auto stored = as_stored(mark)) marks_.push_back(*stored);
    }
  }
  if (decoding == NetcdfDecoding::xarray) return;
  const auto limit = [&](const char* name, std::size_t size, std::size_t i) -> std::optional<long double> {
    const NetcdfAttribute* const attribute = find(attributes, name);
    if (attribute == nullptr || attribute->numbers.size() != size) return std::nullopt;
    const long double number = attribute->numbers[i];
    if (std::isnan(number) && is_floating(stored_))  // it limits nothing
      return i == 0 ? -std::numeric_limits<long double>::infinity()
                    : std::numeric_limits<long double>::infinity();
    return as_stored(number);
  };
  const auto least = limit("valid_range", 2, 0), largest = limit("valid_range", 2, 1);
  const bool has_range = least && largest;
  least_ = has_range ? least : limit("valid_min", 1, 0);
  largest_ = has_range ? largest : limit("valid_max", 1, 0);
  has_marks_ |= least_ || largest_;
}

void NetcdfPacking::choose_type(const NetcdfAttributes& attributes, NetcdfDecoding decoding) {
  type_ = stored_;
  const auto type_of = [&](const char* name) { return find(attributes, name)->type; };
  if (decoding == NetcdfDecoding::netcdf4) {
    const bool is_same = scale_ && offset_ && *scale_ == 1 && *offset_ == 0;
    if (is_same) type_ = type_of("scale_factor");
    if (is_same || (scale_ && !offset_ && *scale_ == 1)) scale_.reset();
    if (is_same || (offset_ && !scale_ && *offset_ == 0)) offset_.reset();
    if (scale_) type_ = product_type_ = promoted(type_, type_of("scale_factor"));
    if (offset_) type_ = promoted(type_, type_of("add_offset"));
  } else {
    const bool is_wide = row_of(stored_).bytes == 4 && !is_floating(stored_);
    if (scale_ && offset_)
      type_ =
          type_of("scale_factor") == type_of("add_offset") && !is_wide && is_floating(type_of("scale_factor"))
              ? type_of("scale_factor")
              : TensorType::float64;
    else if (offset_)
      type_ = TensorType::float64;
    else if (scale_)
      type_ = is_floating(type_of("scale_factor")) ? type_of("scale_factor") : TensorType::float64;
    product_type_ = type_;
  }
  const bool is_to_float = has_marks_ || scale_ || offset_ || type_ != stored_;
  if (!is_floating(type_) && is_to_float) type_ = float_for(stored_);
}

template <class Stored, class Out>
void NetcdfPacking::scale_values(const Stored* stored, std::int64_t count, Out* out) const {
  const auto multiply = [&](auto factor) {
    using Product = decltype(factor);
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = static_cast<Out>(static_cast<Product>(stored[i]) * factor);
  };
  if (!scale_)
    std::transform(stored, stored + count, out, [](Stored value) { return static_cast<Out>(value); });
  else if (product_type_ == TensorType::float32)
    multiply(static_cast<float>(*scale_));
  else
    multiply(static_cast<double>(*scale_));
  // On its own: a fused multiply-add would round once.
  if (!offset_) return;
  const auto offset = static_cast<Out>(*offset_);
  for (std::int64_t i = 0; i < count; ++i) out[i] += offset;
}

template <class Stored>
void NetcdfPacking::decode_values(const Stored* stored, std::int64_t count, char* out) const {
  const auto as_value = [](long double number) { return static_cast<Stored>(number); };
  if (!is_floating(type_)) {
    const auto* const unwritten =
        fill_ ? std::find(stored, stored + count, as_value(*fill_)) : stored + count;
    if (unwritten != stored + count)
      throw DataError(
          {.place = place_,
           .found = "a value is " + std::to_string(*unwritten) + ", which NetCDF fills unwritten parts with",
           .wanted = "values, or an attribute _FillValue or missing_value",
           .remedy = "if it is a value, set data.decode = \"xarray\""});
    if (count > 0) std::memcpy(out, stored, static_cast<std::size_t>(count) * sizeof(Stored));
    return;
  }
  std::vector<Stored> marks;
  for (const long double mark : marks_) marks.push_back(as_value(mark));
  if (fill_) marks.push_back(as_value(*fill_));
  using Limits = std::numeric_limits<Stored>;
  const Stored least = least_ ? as_value(*least_) : Limits::lowest(),
               largest = largest_ ? as_value(*largest_) : Limits::max();
  const auto is_missing = [&](Stored value) {
    return (least_ && value < least) || (largest_ && value > largest) ||
           std::find(marks.begin(), marks.end(), value) != marks.end();
  };
  const auto decode_to = [&](auto* values) {
    scale_values(stored, count, values);
    constexpr auto kMissing = std::numeric_limits<std::remove_pointer_t<decltype(values)>>::quiet_NaN();
    for (std::int64_t i = 0; i < count; ++i)
      if (is_missing(stored[i])) values[i] = kMissing;
  };
  if (type_ == TensorType::float32)
    decode_to(reinterpret_cast<float*>(out));
  else
    decode_to(reinterpret_cast<double*>(out));
}

void NetcdfPacking::decode(const char* stored, std::int64_t count, char* out) const {
  with_type(stored_,
            [&](auto type) { decode_values(reinterpret_cast<const decltype(type)*>(stored), count, out); });
}

}  // namespace kindling
