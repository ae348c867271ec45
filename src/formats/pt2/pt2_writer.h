#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/pt2/program_weight.h"
#include "formats/zip/zip_writer.h"
#include "kindling/base/export.h"

namespace kindling {

// The contents of a .pt2 file; borrowed until it has been written.
struct Pt2Parts {
  const ExportedProgram& program;
  std::span<const ProgramWeight> weights;  // the weights that the program's inputs name, including constants
  std::span<const std::string_view> storages;     // the bytes of each storage
  std::string_view examples;                      // of the arguments, as torch_file_of writes them
  std::map<std::string, std::string> metadata{};  // extra_files of torch.export.load, by name
};

// Returns a program as the JSON that torch.export.load reads. The names of values must be those of the
// program's tensors and numbers.
std::string json_of(const ExportedProgram& program);

// Builds an archive that Python's torch.export.load reads.
class KINDLING_API Pt2Writer {
 public:
  explicit Pt2Writer(const Pt2Parts& parts);
  Pt2Writer(const Pt2Writer&) = delete;
  Pt2Writer& operator=(const Pt2Writer&) = delete;

  // Returns the file in pieces, which are valid as long as this and the parts.
  std::span<const std::string_view> pieces() const noexcept { return pieces_; }
  // Atomic and durable (write_file_atomically). Throws CheckpointError.
  void write(const std::filesystem::path& path) const;

 private:
  void add_weights(const Pt2Parts& parts, bool constants);

  ZipWriter archive_;
  std::vector<std::string_view> pieces_;
  std::string program_, weights_, constants_;  // their JSON
  std::map<std::string, std::string> metadata_;
};

}  // namespace kindling
