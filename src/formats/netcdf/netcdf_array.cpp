#include "formats/netcdf/netcdf_array.h"

#include <netcdf.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/joined.h"
#include "formats/hdf5_lock.h"
#include "formats/netcdf/netcdf_file.h"
#include "formats/tensor_types.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/suggest.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

void add_names(int group, const std::string& prefix, std::vector<StoredArray>& arrays) {
  int num_variables = 0, num_groups = 0;
  nc_inq_nvars(group, &num_variables);
  char name[NC_MAX_NAME + 1] = {};
  for (int id = 0; id < num_variables; ++id)
    if (nc_inq_varname(group, id, name) == NC_NOERR &&
        std::ranges::find(arrays, prefix + name, &StoredArray::name) == arrays.end())
      arrays.push_back({.name = prefix + name, .is_requested = false});
  if (nc_inq_grps(group, &num_groups, nullptr) != NC_NOERR || num_groups == 0) return;
  std::vector<int> groups(static_cast<std::size_t>(num_groups));
  nc_inq_grps(group, nullptr, groups.data());
  for (const int inner : groups)
    if (nc_inq_grpname(inner, name) == NC_NOERR) add_names(inner, prefix + name + "/", arrays);
}

std::vector<long double> numbers_of(const NetcdfVariable& variable, const char* name, TensorType type,
                                    std::size_t count) {
  std::vector<long double> numbers(count);
  const auto read = [&](auto get, auto value) {
    std::vector<decltype(value)> values(count);
    get(variable.group, variable.id, name, values.data());
    std::copy(values.begin(), values.end(), numbers.begin());
  };
  if (type == TensorType::uint64)
    read(nc_get_att_ulonglong, 0ULL);
  else if (type == TensorType::float32 || type == TensorType::float64)
    read(nc_get_att_double, 0.0);
  else
    read(nc_get_att_longlong, 0LL);
  return numbers;
}

NetcdfAttributes attributes_of(const NetcdfVariable& variable) {
  NetcdfAttributes attributes;
  int count = 0;
  nc_inq_varnatts(variable.group, variable.id, &count);
  char name[NC_MAX_NAME + 1] = {};
  for (int i = 0; i < count; ++i) {
    nc_type type = NC_NAT;
    std::size_t size = 0;
    if (nc_inq_attname(variable.group, variable.id, i, name) != NC_NOERR ||
        nc_inq_att(variable.group, variable.id, name, &type, &size) != NC_NOERR)
      continue;
    NetcdfAttribute attribute;
    if (type == NC_CHAR) {
      attribute.text.resize(size);
      nc_get_att_text(variable.group, variable.id, name, attribute.text.data());
    } else if (type == NC_STRING && size == 1) {
      char* text = nullptr;
      if (nc_get_att_string(variable.group, variable.id, name, &text) == NC_NOERR && text != nullptr) {
        attribute.text = text;
        nc_free_string(1, &text);
      }
    } else if (const auto number = netcdf_tensor_type(type)) {
      attribute.type = *number;
      attribute.numbers = numbers_of(variable, name, *number, size);
    }
    attributes[name] = std::move(attribute);
  }
  return attributes;
}

class NetcdfRows final : public RowSource {
 public:
  NetcdfRows(std::shared_ptr<const NetcdfFile> file, NetcdfVariable variable, std::size_t axis,
             NetcdfPacking packing)
      : file_(std::move(file)), variable_(std::move(variable)), axis_(axis), packing_(std::move(packing)) {
    for (std::size_t i = 0; i < variable_.sizes.size(); ++i)
      if (i != axis_) row_values_ *= variable_.sizes[i];
    value_bytes_ = row_of(*netcdf_tensor_type(variable_.type)).bytes;
  }

  void read(const std::int64_t* numbers, std::int64_t count, char* out) const override {
    const std::size_t decoded_bytes = row_values_ * row_of(packing_.type()).bytes;
    std::vector<char> stored;
    for (std::int64_t i = 0, end = 0; i < count; i = end) {
      end = axis_ == 0 ? end_of_run(numbers, i, count) : i + 1;
      const auto rows = static_cast<std::size_t>(end - i);
      if (packing_.is_packed()) stored.resize(rows * row_values_ * value_bytes_);
      char* const values = packing_.is_packed() ? stored.data() : out;
      read_stored(static_cast<std::size_t>(numbers[i]), rows, values);
      if (packing_.is_packed()) packing_.decode(values, static_cast<std::int64_t>(rows * row_values_), out);
      out += rows * decoded_bytes;
    }
  }
  std::string place() const override { return file_->path().string(); }

 private:
  // So that what is decoded stays in the processor's cache.
  std::int64_t end_of_run(const std::int64_t* numbers, std::int64_t begin, std::int64_t count) const {
    constexpr std::size_t kMostBytes = std::size_t{1} << 22;
    const auto most = static_cast<std::int64_t>(
        std::max<std::size_t>(1, kMostBytes / std::max<std::size_t>(1, row_values_ * value_bytes_)));
    std::int64_t end = begin + 1;
    while (end < count && end < begin + most && numbers[end] == numbers[end - 1] + 1) ++end;
    return end;
  }

  void read_stored(std::size_t first, std::size_t count, char* values) const {
    file_->require_whole();
    std::vector<std::size_t> start(variable_.sizes.size()), counts = variable_.sizes;
    start[axis_] = first;
    counts[axis_] = count;
    const std::lock_guard lock(hdf5_mutex());
    require_netcdf(nc_get_vara(variable_.group, variable_.id, start.data(), counts.data(), values), place(),
                   "reading samples");
  }

  std::shared_ptr<const NetcdfFile> file_;
  NetcdfVariable variable_;
  std::size_t axis_, row_values_ = 1, value_bytes_ = 1;
  NetcdfPacking packing_;
};

bool is_filled(const NetcdfVariable& variable) {
  int has_no_fill = 0;
  return nc_inq_var_fill(variable.group, variable.id, &has_no_fill, nullptr) != NC_NOERR || has_no_fill == 0;
}

StoredArray array_of(const std::shared_ptr<const NetcdfFile>& file, const std::string& name,
                     NetcdfVariable variable, const std::string& sample_dim, NetcdfDecoding decoding) {
  const std::string place = file->path().string() + ", variable '" + name + "'";
  const std::optional<TensorType> type = netcdf_tensor_type(variable.type);
  if (!type)
    throw DataError({.place = place,
                     .found = variable.type == NC_CHAR || variable.type == NC_STRING
                                  ? "its values are texts"
                                  : "its values are of a type of their own (compound, enum, opaque or vlen)",
                     .wanted = "numbers"});
  const std::size_t axis = netcdf_sample_axis(variable, sample_dim, place);
  NetcdfPacking packing(*type, attributes_of(variable), decoding, is_filled(variable), place);
  StoredArray array{.name = name, .type = packing.type()};
  array.shape.push_back(static_cast<std::int64_t>(variable.sizes[axis]));
  for (std::size_t i = 0; i < variable.sizes.size(); ++i)
    if (i != axis) array.shape.push_back(static_cast<std::int64_t>(variable.sizes[i]));
  array.size_bytes = bytes_of(array.type, array.shape).value_or(0);
  array.rows = std::make_shared<NetcdfRows>(file, std::move(variable), axis, std::move(packing));
  return array;
}

}  // namespace

bool can_read_netcdf() noexcept { return true; }

std::vector<StoredArray> stored_netcdf(const fs::path& path, const std::set<std::string>& names,
                                       const std::string& sample_dim, NetcdfDecoding decoding) {
  const std::lock_guard lock(hdf5_mutex());
  const auto file = std::make_shared<const NetcdfFile>(path);
  std::vector<StoredArray> arrays;
  for (const std::string& name : names) {
    if (name.empty()) continue;
    std::optional<NetcdfVariable> variable = find_netcdf_variable(*file, name);
    if (variable) arrays.push_back(array_of(file, name, std::move(*variable), sample_dim, decoding));
  }
  if (arrays.size() < names.size() - names.count("")) add_names(file->id(), "", arrays);
  return arrays;
}

}  // namespace kindling
