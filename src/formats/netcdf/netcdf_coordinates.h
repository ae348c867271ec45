#pragma once

#include <netcdf.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "formats/netcdf/netcdf_file.h"

namespace kindling {

// The files whose samples are joined. Requires the lock in all functions.
class NetcdfSamples {
 public:
  // `array`: has the samples along `sample_dim`, which empty means its first dimension. Throws DataError.
  NetcdfSamples(std::vector<std::filesystem::path> files, std::string array, const std::string& sample_dim);

  const std::string& dim() const { return dim_; }
  std::size_t num_files() const { return files_.size(); }
  const NetcdfFile& file(std::size_t number);
  // Returns the variable of a name near the array of a file: in its group, or in one around it.
  std::optional<NetcdfVariable> find(std::size_t file, const std::string& name);
  // Returns the file that has a row, which becomes the number of the row in it.
  std::size_t locate(std::int64_t& row) const;

 private:
  std::vector<std::filesystem::path> files_;
  std::string array_, dim_;
  std::vector<std::int64_t> ends_{};  // the rows up to the end of each file
  std::optional<std::size_t> open_number_{};
  std::unique_ptr<const NetcdfFile> open_file_{};
};

// Returns the variable of a name in a group, or in one around it.
std::optional<NetcdfVariable> find_netcdf_variable_near(int group, const std::string& name);
// Returns an attribute that is one text; empty: there is none.
std::string netcdf_text_attribute(const NetcdfVariable& variable, const std::string& name);

// The variables of other files that a new file gets with their dimensions, attributes and values:
// coordinates, their bounds, and the mapping of a grid. Requires the lock in all functions.
class NetcdfCoordinates {
 public:
  // `sample_dim`: the new file's dimension of samples, number `sample_dim_id`.
  NetcdfCoordinates(int new_file, std::string place, std::string sample_dim, int sample_dim_id);

  // Defines a dimension, unless there is one of the name; returns its number, or nullopt for another size.
  std::optional<int> define_dim(const std::string& name, std::size_t size);
  struct Wanted {
    const NetcdfVariable* targets = nullptr;   // whose coordinates these are
    std::set<std::string> row_dims{};          // the dimensions of the targets that count rows
    std::shared_ptr<NetcdfSamples> samples{};  // have the coordinates; nullptr: there are none
    bool has_rows = true;                      // false: no coordinates along the samples
    bool is_like_targets = true;               // false: only coordinates along the samples
    std::set<std::string> taken_names{};       // of other variables
  };
  void define(Wanted wanted);
  // Copies the attributes of targets, without those of packing, and without names of variables that have not
  // been defined. Those that say what classes mean are for classes only.
  void copy_attributes(const NetcdfVariable& targets, int to, bool is_class);
  // Copies the values that do not depend on the samples.
  void copy_fixed();
  // Copies those of rows to the new file's rows from `first` on.
  void copy_rows(std::span<const std::int64_t> rows, std::size_t first);

 private:
  struct Copy {
    std::string name{};
    int to = -1;
    std::optional<std::size_t> axis{};  // of the samples
  };
  bool define_copy(const std::string& name);
  bool is_copied(const std::string& name) const;
  void put_text(int to, const char* attribute, const std::string& text) const;
  void copy_names(const NetcdfVariable& from, int to, const char* attribute) const;
  void copy_attributes_of(const NetcdfVariable& from, int to, const std::set<std::string>& skipped);
  void copy_rows_of(const NetcdfVariable& from, const Copy& copy, std::span<const std::int64_t> rows,
                    std::size_t first);
  std::string description_of(std::size_t file, const std::string& name);
  bool is_same_in_all_files(const std::string& name);

  int new_file_;
  std::string place_, sample_dim_;
  std::map<std::string, std::pair<int, std::size_t>> dims_{};  // number and size
  Wanted wanted_{};
  std::vector<Copy> copies_{};
};

}  // namespace kindling
