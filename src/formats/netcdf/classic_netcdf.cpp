#include "formats/netcdf/classic_netcdf.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "kindling/base/error.h"

// By the format's specification, "File Format Specifications" of the NetCDF User's Guide.
namespace kindling {
namespace {

constexpr std::uint64_t kStreamedRecords = 0xFFFFFFFF;  // the number of records is not known

struct ClassicVariable {
  std::uint64_t begin = 0, bytes = 0;  // of a record for those of records
  bool has_records = false;
};

class ClassicHeader {
 public:
  explicit ClassicHeader(const InputFile& file) : file_(file) {
    const std::string magic = bytes(4);
    version_ = magic.starts_with("CDF") ? magic[3] : 0;
  }

  bool is_classic() const { return version_ == 1 || version_ == 2 || version_ == 5; }

  std::uint64_t file_size() {
    const std::uint64_t num_records = count();
    std::vector<std::uint64_t> dims;
    each([&] {
      skip_name();
      dims.push_back(count());
    });
    skip_attributes();
    std::vector<ClassicVariable> variables;
    each([&] { variables.push_back(variable(dims)); });
    return end_of(variables, num_records == kStreamedRecords && version_ != 5 ? 0 : num_records);
  }

 private:
  static std::uint64_t padded(std::uint64_t size) { return (size + 3) / 4 * 4; }

  std::string bytes(std::uint64_t size) {
    if (size > file_.size()) throw Error({.found = "a number is too large"});
    std::string text(size, '\0');
    file_.read(position_, text.data(), size);
    position_ += size;
    return text;
  }
  std::uint64_t number(std::uint64_t size) {
    std::uint64_t value = 0;
    for (const char c : bytes(size)) value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }
  std::uint64_t count() { return number(version_ == 5 ? 8 : 4); }
  void skip(std::uint64_t size) { position_ += padded(size); }
  void skip_name() { skip(count()); }

  // Elements of a list, which has a tag.
  template <class Read>
  void each(Read read) {
    number(4);
    for (std::uint64_t i = 0, size = count(); i < size; ++i) read();
  }
  std::uint64_t bytes_of_type() {
    constexpr std::array<std::uint64_t, 12> kBytes{0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8};
    const std::uint64_t type = number(4);
    if (type == 0 || type >= kBytes.size()) throw Error({.found = "a type is unknown"});
    return kBytes[type];
  }
  void skip_attributes() {
    each([&] {
      skip_name();
      const std::uint64_t size = bytes_of_type();
      skip(size * count());
    });
  }
  ClassicVariable variable(const std::vector<std::uint64_t>& dims) {
    ClassicVariable variable;
    skip_name();
    std::uint64_t values = 1;
    for (std::uint64_t i = 0, rank = count(); i < rank; ++i) {
      const std::uint64_t size = dims.at(count());
      if (size == 0)
        variable.has_records = true;
      else
        values *= size;
    }
    skip_attributes();
    variable.bytes = values * bytes_of_type();
    count();  // vsize, which cannot hold the size of a large variable
    variable.begin = number(version_ == 1 ? 4 : 8);
    return variable;
  }
  static std::uint64_t end_of(const std::vector<ClassicVariable>& variables, std::uint64_t num_records) {
    std::uint64_t num_with_records = 0, record = 0, end = 0;
    for (const ClassicVariable& variable : variables)
      if (variable.has_records) ++num_with_records, record += padded(variable.bytes);
    for (const ClassicVariable& variable : variables) {
      if (num_with_records == 1 && variable.has_records) record = variable.bytes;  // it has no padding
      if (!variable.has_records)
        end = std::max(end, variable.begin + variable.bytes);
      else if (num_records > 0)
        end = std::max(end, variable.begin + (num_records - 1) * record + variable.bytes);
    }
    return end;
  }

  const InputFile& file_;
  std::uint64_t position_ = 0;
  int version_ = 0;
};

}  // namespace

std::optional<std::uint64_t> size_of_classic_netcdf(const InputFile& file) try {
  ClassicHeader header(file);
  if (!header.is_classic()) return std::nullopt;
  return header.file_size();
} catch (const std::exception&) {
  return std::nullopt;
}

}  // namespace kindling
