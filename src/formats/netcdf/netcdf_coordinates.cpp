#include "formats/netcdf/netcdf_coordinates.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <sstream>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// The variables that "lat lon", "crs: x y" and, of formula_terms, "a: height b: sigma" name.
std::vector<std::string> names_in(const std::string& text, const std::string& attribute) {
  std::vector<std::string> names;
  for (std::string& word : words_of(text)) {
    const bool is_key = word.ends_with(':');
    if (is_key && attribute == "formula_terms") continue;
    if (is_key) word.pop_back();
    names.push_back(std::move(word));
  }
  return names;
}

std::vector<std::string> attribute_names(const NetcdfVariable& variable) {
  int count = 0;
  nc_inq_varnatts(variable.group, variable.id, &count);
  std::vector<std::string> names;
  char name[NC_MAX_NAME + 1] = {};
  for (int i = 0; i < count; ++i)
    if (nc_inq_attname(variable.group, variable.id, i, name) == NC_NOERR) names.emplace_back(name);
  return names;
}

// They name other variables of the file, or variables whose values have other shapes.
const std::set<std::string> kNamesOfOthers{"ancillary_variables", "cell_measures", "formula_terms",
                                           "coordinates",         "grid_mapping",  "bounds",
                                           "climatology",         "_ChunkSizes"};
// Predictions are not packed, and may be outside of the range of the targets.
const std::set<std::string> kPacking{"scale_factor",  "add_offset",   "_FillValue",
                                     "missing_value", "valid_min",    "valid_max",
                                     "valid_range",   "actual_range", "_Unsigned"};
constexpr std::size_t kBytesAtOnce = std::size_t{1} << 22;
const std::set<std::string> kFlags{"flag_masks", "flag_values", "flag_meanings"};

}  // namespace

std::optional<NetcdfVariable> find_netcdf_variable_near(int group, const std::string& name) {
  for (int status = NC_NOERR; status == NC_NOERR; status = nc_inq_grp_parent(group, &group))
    if (int id = -1; nc_inq_varid(group, name.c_str(), &id) == NC_NOERR)
      return netcdf_variable(group, id, name);
  return std::nullopt;
}

std::string netcdf_text_attribute(const NetcdfVariable& variable, const std::string& name) {
  nc_type type = NC_NAT;
  std::size_t size = 0;
  std::string found;
  if (nc_inq_att(variable.group, variable.id, name.c_str(), &type, &size) != NC_NOERR) return found;
  if (type == NC_CHAR) {
    found.resize(size);
    nc_get_att_text(variable.group, variable.id, name.c_str(), found.data());
    while (found.ends_with('\0')) found.pop_back();
  } else if (char* text = nullptr;
             type == NC_STRING && size == 1 &&
             nc_get_att_string(variable.group, variable.id, name.c_str(), &text) == NC_NOERR) {
    found = text == nullptr ? "" : text;
    nc_free_string(1, &text);
  }
  return found;
}

NetcdfSamples::NetcdfSamples(std::vector<fs::path> files, std::string array, const std::string& sample_dim)
    : files_(std::move(files)), array_(std::move(array)) {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const std::string place = file(i).path().string() + ", variable '" + array_ + "'";
    const std::optional<NetcdfVariable> variable = find_netcdf_variable(file(i), array_);
    if (!variable)
      throw DataError({.place = place, .found = "it is gone", .wanted = "files that do not change"});
    const std::size_t axis = netcdf_sample_axis(*variable, sample_dim, place);
    if (i == 0) dim_ = variable->dims[axis];
    ends_.push_back((i == 0 ? 0 : ends_.back()) + static_cast<std::int64_t>(variable->sizes[axis]));
  }
}

const NetcdfFile& NetcdfSamples::file(std::size_t number) {
  if (open_number_ != number) {
    open_file_.reset();
    open_file_ = std::make_unique<const NetcdfFile>(files_[number]);
    open_number_ = number;
  }
  return *open_file_;
}

std::optional<NetcdfVariable> NetcdfSamples::find(std::size_t number, const std::string& name) {
  const std::optional<NetcdfVariable> array = find_netcdf_variable(file(number), array_);
  return array ? find_netcdf_variable_near(array->group, name) : std::nullopt;
}

std::size_t NetcdfSamples::locate(std::int64_t& row) const {
  const auto number = static_cast<std::size_t>(std::ranges::upper_bound(ends_, row) - ends_.begin());
  if (row < 0 || number == ends_.size())
    throw DataError({.place = files_.front().string(),
                     .found = "there is no sample " + std::to_string(row),
                     .wanted = "files that do not change"});
  if (number > 0) row -= ends_[number - 1];
  return number;
}

NetcdfCoordinates::NetcdfCoordinates(int new_file, std::string place, std::string sample_dim,
                                     int sample_dim_id)
    : new_file_(new_file), place_(std::move(place)), sample_dim_(std::move(sample_dim)) {
  dims_[sample_dim_] = {sample_dim_id, 0};
}

std::optional<int> NetcdfCoordinates::define_dim(const std::string& name, std::size_t size) {
  if (const auto found = dims_.find(name); found != dims_.end())
    return name == sample_dim_ || found->second.second == size ? std::optional(found->second.first)
                                                               : std::nullopt;
  if (size == 0) return std::nullopt;  // it would be unlimited
  int id = -1;
  require_netcdf(nc_def_dim(new_file_, name.c_str(), size, &id), place_, "defining a dimension");
  dims_[name] = {id, size};
  return id;
}

void NetcdfCoordinates::define(Wanted wanted) {
  wanted_ = std::move(wanted);
  if (!wanted_.samples) return;
  wanted_.row_dims.insert(sample_dim_);
  std::vector<std::string> names{sample_dim_};
  names.insert(names.end(), wanted_.targets->dims.begin(), wanted_.targets->dims.end());
  for (const char* const attribute : {"coordinates", "grid_mapping"})
    for (std::string& name : names_in(netcdf_text_attribute(*wanted_.targets, attribute), attribute))
      names.push_back(std::move(name));
  std::set<std::string> seen;
  for (const std::string& name : names)
    if (seen.insert(name).second) define_copy(name);
  for (std::size_t i = 0, count = copies_.size(); i < count; ++i)
    for (const char* const attribute : {"bounds", "climatology"}) {
      const auto from = wanted_.samples->find(0, copies_[i].name);
      const std::string name = from ? netcdf_text_attribute(*from, attribute) : "";
      const int to = copies_[i].to;
      if (!name.empty() && define_copy(name)) put_text(to, attribute, name);
    }
  for (const Copy& copy : copies_)
    if (const auto from = wanted_.samples->find(0, copy.name))
      for (const char* const attribute : {"formula_terms", "grid_mapping"})
        copy_names(*from, copy.to, attribute);
}

// True if the variable has been defined, now or before. The targets' file may have another grid than the
// samples, so all comes from theirs.
bool NetcdfCoordinates::define_copy(const std::string& name) {
  if (std::ranges::find(copies_, name, &Copy::name) != copies_.end()) return true;
  if (wanted_.taken_names.contains(name)) return false;
  const auto axis_in = [&](const NetcdfVariable& variable) -> std::optional<std::size_t> {
    const auto found = std::ranges::find(variable.dims, sample_dim_);
    if (found == variable.dims.end()) return std::nullopt;
    return static_cast<std::size_t>(found - variable.dims.begin());
  };
  const auto counts_rows = [&](const std::string& dim) { return wanted_.row_dims.contains(dim); };
  std::optional<NetcdfVariable> from = wanted_.samples->find(0, name);
  if (!from || from->type > NC_MAX_ATOMIC_TYPE || std::ranges::count(from->dims, sample_dim_) > 1)
    return false;
  const bool is_along_samples = counts_rows(name) || std::ranges::any_of(from->dims, counts_rows);
  if (!wanted_.is_like_targets && !axis_in(*from)) return false;
  if ((is_along_samples && !wanted_.has_rows) || !is_same_in_all_files(name)) return false;
  from = wanted_.samples->find(0, name);  // the other files have been open in between
  if (!from) return false;
  std::vector<int> dims;
  for (std::size_t i = 0; i < from->dims.size(); ++i) {
    const std::optional<int> dim = define_dim(from->dims[i], from->sizes[i]);
    if (!dim) return false;
    dims.push_back(*dim);
  }
  Copy copy{.name = name, .axis = axis_in(*from)};
  require_netcdf(
      nc_def_var(new_file_, name.c_str(), from->type, static_cast<int>(dims.size()), dims.data(), &copy.to),
      place_, "defining a coordinate");
  copy_attributes_of(*from, copy.to, kNamesOfOthers);
  copies_.push_back(std::move(copy));
  return true;
}

namespace {

// Values of a variable that are in memory, as the library returns them.
class NetcdfValues {
 public:
  NetcdfValues(const NetcdfVariable& from, const std::vector<std::size_t>& start,
               const std::vector<std::size_t>& sizes, const std::string& place)
      : is_text_(from.type == NC_STRING) {
    require_netcdf(nc_inq_type(from.group, from.type, nullptr, &value_bytes_), place, "reading a coordinate");
    count_ = std::accumulate(sizes.begin(), sizes.end(), std::size_t{1}, std::multiplies<>());
    values_.resize(std::max<std::size_t>(1, count_) * value_bytes_);
    require_netcdf(nc_get_vara(from.group, from.id, start.data(), sizes.data(), values_.data()), place,
                   "reading a coordinate");
  }
  ~NetcdfValues() {
    if (is_text_) nc_free_string(count_, reinterpret_cast<char**>(values_.data()));
  }
  NetcdfValues(const NetcdfValues&) = delete;
  NetcdfValues& operator=(const NetcdfValues&) = delete;

  const std::vector<char>& bytes() const { return values_; }
  // Equal for equal values.
  std::string description() const {
    if (!is_text_) return {values_.begin(), values_.end()};
    std::string text;
    const auto* const texts = reinterpret_cast<const char* const*>(values_.data());
    for (std::size_t i = 0; i < count_; ++i) text += std::string(texts[i] == nullptr ? "" : texts[i]) + '\0';
    return text;
  }

 private:
  bool is_text_;
  std::size_t value_bytes_ = 0, count_ = 0;
  std::vector<char> values_{};
};

// Returns an attribute, equal for equal values of one type; empty: there is none.
std::string attribute_description(const NetcdfVariable& variable, const std::string& name) {
  nc_type type = NC_NAT;
  std::size_t size = 0, value_bytes = 0;
  if (nc_inq_att(variable.group, variable.id, name.c_str(), &type, &size) != NC_NOERR) return {};
  if (type == NC_CHAR || type == NC_STRING) return netcdf_text_attribute(variable, name);
  if (type > NC_MAX_ATOMIC_TYPE || nc_inq_type(variable.group, type, nullptr, &value_bytes) != NC_NOERR)
    return {};
  std::string values(size * value_bytes, '\0');
  nc_get_att(variable.group, variable.id, name.c_str(), values.data());
  return std::to_string(type) + " " + values;
}

}  // namespace

// Returns a text that is equal for files whose variables can be joined, or are the same without the samples.
std::string NetcdfCoordinates::description_of(std::size_t file, const std::string& name) {
  const std::optional<NetcdfVariable> variable = wanted_.samples->find(file, name);
  if (!variable) return "missing";
  std::string text = std::to_string(variable->type);
  for (std::size_t i = 0; i < variable->dims.size(); ++i)
    text += " " + variable->dims[i] +
            (variable->dims[i] == sample_dim_ ? "" : "=" + std::to_string(variable->sizes[i]));
  for (const char* const attribute :
       {"units", "calendar", "scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned"})
    text += "\n" + attribute_description(*variable, attribute);
  if (variable->dims.empty())  // the attributes of a mapping of the grid are its contents
    for (const std::string& attribute : attribute_names(*variable))
      text += "\n" + attribute + " " + attribute_description(*variable, attribute);
  if (std::ranges::find(variable->dims, sample_dim_) == variable->dims.end() &&
      variable->type <= NC_MAX_ATOMIC_TYPE) {
    const std::vector<std::size_t> start(variable->sizes.size());
    text += "\n" + NetcdfValues(*variable, start, variable->sizes, place_).description();
  }
  return text;
}

// Times of several files may be counted from different days, and grids may differ.
bool NetcdfCoordinates::is_same_in_all_files(const std::string& name) {
  if (wanted_.samples->num_files() == 1) return true;
  const std::string first = description_of(0, name);
  for (std::size_t i = 1; i < wanted_.samples->num_files(); ++i) {
    if (description_of(i, name) == first) continue;
    log_warning("predict: the predictions have no coordinate '" + name +
                "', because it has another type, other units or other values in " +
                wanted_.samples->file(i).path().string());
    return false;
  }
  return true;
}

void NetcdfCoordinates::copy_attributes_of(const NetcdfVariable& from, int to,
                                           const std::set<std::string>& skipped) {
  for (const std::string& name : attribute_names(from)) {
    nc_type type = NC_NAT;
    std::size_t size = 0;
    nc_inq_att(from.group, from.id, name.c_str(), &type, &size);
    if (skipped.contains(name) || type > NC_MAX_ATOMIC_TYPE) continue;
    if (name == "_FillValue" && type != from.type) continue;  // files of the classic formats may have one
    require_netcdf(nc_copy_att(from.group, from.id, name.c_str(), new_file_, to), place_,
                   "copying an attribute");
  }
}

void NetcdfCoordinates::copy_attributes(const NetcdfVariable& targets, int to, bool is_class) {
  std::set<std::string> skipped = kNamesOfOthers;
  skipped.insert(kPacking.begin(), kPacking.end());
  if (!is_class) skipped.insert(kFlags.begin(), kFlags.end());
  copy_attributes_of(targets, to, skipped);
  std::string coordinates;
  for (const std::string& name : words_of(netcdf_text_attribute(targets, "coordinates")))
    if (is_copied(name)) coordinates += (coordinates.empty() ? "" : " ") + name;
  put_text(to, "coordinates", coordinates);
  copy_names(targets, to, "grid_mapping");
}

bool NetcdfCoordinates::is_copied(const std::string& name) const {
  return std::ranges::find(copies_, name, &Copy::name) != copies_.end();
}

void NetcdfCoordinates::put_text(int to, const char* attribute, const std::string& text) const {
  if (text.empty()) return;
  require_netcdf(nc_put_att_text(new_file_, to, attribute, text.size(), text.c_str()), place_,
                 "writing an attribute");
}

// Copies an attribute that names variables, such as "crs" or "crs: x y", if the file has all of them.
void NetcdfCoordinates::copy_names(const NetcdfVariable& from, int to, const char* attribute) const {
  const std::string text = netcdf_text_attribute(from, attribute);
  if (std::ranges::all_of(names_in(text, attribute),
                          [&](const std::string& name) { return is_copied(name); }))
    put_text(to, attribute, text);
}

void NetcdfCoordinates::copy_fixed() {
  for (const Copy& copy : copies_) {
    if (copy.axis) continue;
    const std::optional<NetcdfVariable> from = wanted_.samples->find(0, copy.name);
    if (!from)
      throw DataError({.place = place_,
                       .found = "the coordinate '" + copy.name + "' is gone",
                       .wanted = "files that do not change"});
    const std::vector<std::size_t> start(from->sizes.size());
    const NetcdfValues values(*from, start, from->sizes, place_);
    require_netcdf(nc_put_vara(new_file_, copy.to, start.data(), from->sizes.data(), values.bytes().data()),
                   place_, "writing a coordinate");
  }
}

void NetcdfCoordinates::copy_rows_of(const NetcdfVariable& from, const Copy& copy,
                                     std::span<const std::int64_t> rows, std::size_t first) {
  const std::size_t axis = *copy.axis;
  std::vector<std::size_t> start(from.sizes.size()), sizes = from.sizes, to(from.sizes.size());
  const auto put = [&](const char* values, std::size_t count) {
    sizes[axis] = count;
    require_netcdf(nc_put_vara(new_file_, copy.to, to.data(), sizes.data(), values), place_,
                   "writing a coordinate");
  };
  const auto [least, largest] = std::ranges::minmax(rows);
  std::size_t row_bytes = sizeof(double);
  for (std::size_t i = 0; i < from.sizes.size(); ++i)
    if (i != axis) row_bytes *= from.sizes[i];
  const std::size_t num_between = static_cast<std::size_t>(largest - least) + 1;
  to[axis] = first;
  if (axis == 0 && num_between * row_bytes <= kBytesAtOnce) {  // one call instead of one for each row
    start[0] = static_cast<std::size_t>(least);
    sizes[0] = num_between;
    const NetcdfValues values(from, start, sizes, place_);
    const std::size_t bytes = values.bytes().size() / num_between;
    std::vector<char> chosen;
    for (const std::int64_t row : rows) {
      const char* const at = values.bytes().data() + static_cast<std::size_t>(row - least) * bytes;
      chosen.insert(chosen.end(), at, at + bytes);
    }
    return put(chosen.data(), rows.size());
  }
  for (const std::int64_t row : rows) {
    start[axis] = static_cast<std::size_t>(row);
    sizes[axis] = 1;
    put(NetcdfValues(from, start, sizes, place_).bytes().data(), 1);
    ++to[axis];
  }
}

void NetcdfCoordinates::copy_rows(std::span<const std::int64_t> rows, std::size_t first) {
  if (!wanted_.samples ||
      std::ranges::none_of(copies_, [](const Copy& copy) { return copy.axis.has_value(); }))
    return;
  for (std::size_t i = 0; i < rows.size();) {
    std::vector<std::int64_t> in_file;
    std::int64_t row = rows[i];
    const std::size_t number = wanted_.samples->locate(row);
    for (std::size_t j = i; j < rows.size(); ++j) {
      row = rows[j];
      if (wanted_.samples->locate(row) != number) break;
      in_file.push_back(row);
    }
    for (const Copy& copy : copies_) {
      if (!copy.axis) continue;
      if (const auto from = wanted_.samples->find(number, copy.name))
        copy_rows_of(*from, copy, in_file, first + i);
    }
    i += in_file.size();
  }
}

}  // namespace kindling
