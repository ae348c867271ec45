#include "cli/commands/prediction_writer.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/joined.h"
#include "data/loading/file_pattern.h"
#include "formats/hdf5/hdf5_array.h"
#include "formats/hdf5/hdf5_writer.h"
#include "formats/netcdf/netcdf_array.h"
#include "formats/netcdf/netcdf_writer.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/text.h"
#include "tensors/host_values.h"
#include "tensors/scalar_types.h"

namespace kindling {
namespace {

using NamedTensor = std::pair<std::string, at::Tensor>;

bool is_npy(const std::filesystem::path& file) { return lower_case(file.extension().string()) == ".npy"; }

// NumPy has no bfloat16, and NetCDF no float16; float32 holds their values.
at::Tensor values_for(const std::filesystem::path& file, const NamedTensor& column) {
  const at::ScalarType type = column.second.scalar_type();
  if (type == at::kBFloat16 || (type == at::kHalf && !is_npy(file)))
    return host_values(column.second.to(at::kFloat));
  if (!tensor_type_of(type) || (column.second.is_complex() && !is_npy(file)))
    throw ConfigError({.place = "--out " + file.string(),
                       .found = "'" + one_line(column.first) + "' has the type " + toString(type) +
                                ", which the file cannot hold",
                       .wanted = "for example --out predictions.npz, or .safetensors"});
  return host_values(column.second);
}

// HDF5 and NetCDF take a/b as b in the group a.
std::string without_groups(std::string name) {
  std::ranges::replace(name, '/', '_');
  return name;
}

// Nothing if they are gone: a run predicts other files without those of its training.
std::vector<std::filesystem::path> existing_files_of(const std::filesystem::path& pattern) {
  std::error_code ignored;
  if (!is_file_pattern(pattern))
    return std::filesystem::exists(pattern, ignored) ? std::vector{pattern}
                                                     : std::vector<std::filesystem::path>{};
  try {
    return files_of(pattern);
  } catch (const DataError&) {
    return {};
  }
}

RowOrigin row_origin_of(const PredictionOrigin& origin, const std::filesystem::path& out) {
  const bool is_same_format = (is_hdf5_file(out) && is_hdf5_file(origin.file)) ||
                              (is_netcdf_file(out) && is_netcdf_file(origin.file));
  std::vector<std::filesystem::path> files = existing_files_of(origin.file);
  if (!is_same_format || files.empty()) return {};
  RowOrigin rows{.files = std::move(files),
                 .array = origin.array,
                 .sample_dim = origin.sample_dim,
                 .num_row_dims = origin.num_row_dims,
                 .has_rows = origin.has_rows};
  if (!origin.predicted_file.empty()) {
    rows.sample_files = files_of(origin.predicted_file);
    rows.sample_array = origin.predicted_array;
    // Inputs of another format have no coordinates.
    rows.has_coordinates = !is_netcdf_file(out) || is_netcdf_file(origin.predicted_file);
    rows.has_rows = rows.has_rows && rows.has_coordinates;
  }
  return rows;
}

}  // namespace

bool is_written_in_parts(const std::filesystem::path& file) {
  return is_npy(file) || is_hdf5_file(file) || is_netcdf_file(file);
}

void require_prediction_library(const std::filesystem::path& file) {
  const auto refuse = [&](const char* library, const char* package) {
    throw ConfigError(
        {.place = "--out " + file.string(),
         .found = std::string("Kindling was built without ") + library,
         .wanted = "a build with it, or another format such as .npy",
         .remedy = std::string("install ") + package + " (Debian's name) and configure the build again"});
  };
  if (is_hdf5_file(file) && !can_read_hdf5()) refuse("HDF5", "libhdf5-dev");
  if (is_netcdf_file(file) && !can_read_netcdf()) refuse("NetCDF", "libnetcdf-dev");
}

void require_other_file(const std::filesystem::path& file,
                        const std::vector<std::filesystem::path>& data_files) {
  std::error_code ignored;
  for (const std::filesystem::path& pattern : data_files) {
    if (belongs_to_pattern(file, pattern) && !std::filesystem::exists(file, ignored))
      throw ConfigError({.place = "--out " + file.string(),
                         .found = "it would become a file of the data, " + pattern.string(),
                         .wanted = "a name that does not match the pattern, or another directory",
                         .remedy = "nothing has been written"});
    if (!std::filesystem::exists(file, ignored)) continue;
    for (const std::filesystem::path& known : existing_files_of(pattern))
      if (std::filesystem::equivalent(file, known, ignored))
        throw ConfigError({.place = "--out " + file.string(),
                           .found = "it is a file of the data",
                           .wanted = "another file",
                           .remedy = "nothing has been written"});
  }
}

PredictionWriter::PredictionWriter(Options options) : options_(std::move(options)) {
  options_.ids.values.resize(
      std::min(options_.ids.values.size(), static_cast<std::size_t>(options_.num_samples)));
  id_numbers_ = id_numbers_of(options_.ids);
  options_.ids.name = without_groups(options_.ids.name);
  if (options_.ids.name == "classes") options_.ids.name = "id.classes";
}

PredictionWriter::~PredictionWriter() = default;

// The names of further outputs are those of .npz files.
PredictionWriter::NamedTensors PredictionWriter::columns_of(const Predictions& batch,
                                                            const std::vector<std::int64_t>& rows) const {
  const std::filesystem::path& file = options_.file;
  const auto count = static_cast<std::int64_t>(rows.size());
  NamedTensors columns;
  if (batch.values.defined()) columns.emplace_back(batch.name, batch.values);
  if (batch.classes.defined()) columns.emplace_back("classes", batch.classes);
  if (batch.several.defined()) columns.emplace_back("classes", batch.several);
  if (is_npy(file)) {
    columns.resize(1);
  } else {
    if (id_numbers_.defined())
      columns.emplace_back(options_.ids.name, id_numbers_.narrow(0, num_written_, count));
    if (is_hdf5_file(file) && options_.origin.has_rows && !options_.origin.rows.empty())
      columns.emplace_back("row", at::tensor(rows, at::kLong));
    for (const auto& [output, values] : batch.more) {
      const std::string name = without_groups(output);
      const bool is_taken = std::ranges::find(columns, name, &NamedTensor::first) != columns.end() ||
                            name == "sample" || name == options_.ids.name;
      columns.emplace_back(is_taken ? "output." + name : name, values);
    }
  }
  for (auto& [name, values] : columns) {
    values = values_for(file, {name, values});
    if (values.dim() == 0 || values.size(0) != count)
      throw DataError({.place = "predict",
                       .found = "'" + one_line(name) + "' has the shape " + shape_text(values.sizes()) +
                                " for " + std::to_string(count) + " samples",
                       .wanted = "a row for each sample"});
  }
  return columns;
}

void PredictionWriter::begin(const NamedTensors& columns, const std::string& values_name) {
  for (const auto& [name, values] : columns)
    columns_.push_back({.name = name,
                        .type = *tensor_type_of(values.scalar_type()),
                        .row_shape = values.sizes().slice(1).vec(),
                        .estimates_targets = options_.estimates_targets && name == values_name,
                        .is_class = name == "classes"});
  const auto& [file, num_samples, origin, ids, estimates_targets] = options_;
  delete_stale_temporary_files(std::filesystem::absolute(file).parent_path(), file.filename().string());
  const bool has_texts = !ids.name.empty() && !id_numbers_.defined();
  const RowTexts texts = has_texts ? RowTexts{ids.name, ids.values} : RowTexts{};
  if (is_npy(file))
    writer_ = npy_writer(file, columns_.front(), num_samples);
  else if (is_hdf5_file(file))
    writer_ = hdf5_writer(file, columns_, texts, row_origin_of(origin, file));
  else
    writer_ = netcdf_writer(file, columns_, texts, row_origin_of(origin, file), num_samples);
}

void PredictionWriter::write(const Predictions& batch, const at::Tensor& indices) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < indices.size(0); ++i) {
    const std::int64_t index = indices.const_data_ptr<std::int64_t>()[i];
    if (index != num_written_ + i || index >= options_.num_samples)
      throw DataError(
          {.place = "predict",
           .found = "sample " + std::to_string(index) + " after " + std::to_string(num_written_ + i),
           .wanted = std::to_string(options_.num_samples) + " samples in the order of the data"});
    const std::vector<std::int64_t>& known = options_.origin.rows;
    rows.push_back(known.empty() ? index : known.at(static_cast<std::size_t>(index)));
  }
  const NamedTensors columns = columns_of(batch, rows);
  if (!writer_) begin(columns, batch.values.defined() ? batch.name : "");
  std::vector<const void*> values;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto& [name, tensor] = columns[i];
    const bool is_further = i > 0 && i + batch.more.size() >= columns.size();
    if (columns.size() != columns_.size() ||
        tensor.sizes().slice(1) != at::IntArrayRef(columns_[i].row_shape) ||
        tensor_type_of(tensor.scalar_type()) != columns_[i].type)
      throw DataError({.place = "predict",
                       .found = "'" + one_line(name) + "' of a batch is " + toString(tensor.scalar_type()) +
                                " " + shape_text(tensor.sizes()),
                       .wanted = "the types and shapes of the first batch",
                       // .npz and .safetensors need equal shapes of the first output only.
                       .remedy = is_further ? "write .npz or .safetensors, which omit such an output" : ""});
    values.push_back(tensor.const_data_ptr());
  }
  writer_->append(values, rows);
  num_written_ += static_cast<std::int64_t>(rows.size());
}

void PredictionWriter::finish() {
  if (!writer_ || num_written_ != options_.num_samples)
    throw DataError({.place = "predict",
                     .found = std::to_string(num_written_) + " samples were predicted",
                     .wanted = std::to_string(options_.num_samples)});
  writer_->finish();
}

}  // namespace kindling
