#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/formats/safetensors.h"

namespace kindling {

// An attribute of a variable. A long double holds every number of 64 bits exactly.
struct NetcdfAttribute {
  TensorType type = TensorType::float64;
  std::vector<long double> numbers{};  // empty: it is a text
  std::string text{};
};
using NetcdfAttributes = std::map<std::string, NetcdfAttribute>;

// Whose rules decide what packed values are: those of the Python packages netCDF4 (1.7) or xarray (2026.9).
enum class NetcdfDecoding { netcdf4, xarray };

// Turns the values of a variable into numbers by its attributes: `_Unsigned`, `_FillValue`, `missing_value`,
// `scale_factor`, `add_offset`, and by netCDF4's rules also `valid_min`, `valid_max`, `valid_range` and the
// value that the library fills unwritten parts with. A missing value becomes NaN; integers that may be
// missing become float32, or float64 if they have 32 bits or more. Unpacked numbers are bit-identical to
// those of the package, except where it computes with integers (`scale_factor = 2`), which here are float64.
class KINDLING_API NetcdfPacking {
 public:
  // `place` is the variable in messages. `is_filled`: unwritten parts are filled. Throws DataError for a
  // scale or an offset that is not one number.
  NetcdfPacking(TensorType stored, const NetcdfAttributes& attributes, NetcdfDecoding decoding,
                bool is_filled, std::string place);

  TensorType type() const noexcept { return type_; }
  // False: values are as they are stored.
  bool is_packed() const noexcept;
  // Throws DataError for an integer that the library fills unwritten parts with, if no attribute says that
  // values may be missing.
  void decode(const char* stored, std::int64_t count, char* out) const;

 private:
  template <class Stored>
  void decode_values(const Stored* stored, std::int64_t count, char* out) const;
  template <class Stored, class Out>
  void scale_values(const Stored* stored, std::int64_t count, Out* out) const;
  std::optional<long double> read_factor(const NetcdfAttributes& attributes, const char* name) const;
  void read_marks(const NetcdfAttributes& attributes, NetcdfDecoding decoding);
  void choose_type(const NetcdfAttributes& attributes, NetcdfDecoding decoding);
  // Returns the number in the type of the values; nullopt if that does not have it.
  std::optional<long double> as_stored(long double number) const;

  TensorType in_file_, stored_, type_;  // stored_: without or with a sign, as `_Unsigned` says
  TensorType product_type_ = TensorType::float64;
  std::optional<long double> scale_{}, offset_{};
  std::vector<long double> marks_{};  // of missing values
  std::optional<long double> least_{}, largest_{};
  std::optional<long double> fill_{};  // of unwritten parts, if no mark says so
  bool has_marks_ = false;
  std::string place_;
};

}  // namespace kindling
