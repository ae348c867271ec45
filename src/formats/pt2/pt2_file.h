#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/pt2/program_weight.h"
#include "formats/zip/zip_archive.h"
#include "kindling/base/export.h"

namespace kindling {

// Reads a file of torch.export.save (.pt2): its program, and its weights, whose bytes are read one storage at
// a time. Pickles in it are refused or ignored. All functions throw CheckpointError.
class KINDLING_API Pt2File {
 public:
  // `program`: the name of the program that is read; a file may have several.
  explicit Pt2File(const std::filesystem::path& path, const std::string& program = "model");
  // Reads a whole file in memory; `place` names it in messages.
  static Pt2File of_bytes(std::string bytes, const std::string& place);
  // The name of the program for evaluation, which kindling.export() in Python writes next to the program for
  // training, "model".
  static constexpr const char* kEvaluation = "evaluation";
  bool has_program(const std::string& name) const;

  const ExportedProgram& program() const noexcept { return program_; }
  // Parameters and buffers; constants. Their values are within their storages.
  const std::vector<ProgramWeight>& weights() const noexcept { return weights_; }
  const std::vector<ProgramWeight>& constants() const noexcept { return constants_; }

  // Returns the `extra_files` of torch.export.save, by name; their bytes are arbitrary.
  std::map<std::string, std::string> extra_files() const;

  std::size_t num_storages() const noexcept { return storages_.size(); }
  std::size_t storage_bytes(std::size_t storage) const { return entry_of(storage).size; }
  void read_storage(std::size_t storage, void* out) const;  // verifies its CRC-32

  // Writes the same file with these bytes in the storages, one span per storage, of its size; atomic and
  // durable. Everything else is copied, including examples and unknown entries.
  void write_copy(const std::filesystem::path& path, std::span<const std::string_view> storages) const;

 private:
  Pt2File(ByteSource source, const std::string& place, const std::string& program);
  const ZipEntry& entry_of(std::size_t storage) const { return archive_.entries()[storages_[storage]]; }
  void check_format() const;
  std::string text_of(std::string_view name) const;
  std::vector<ProgramWeight> read_weights(const std::string& folder, const std::string& config);
  std::size_t storage_at(const std::string& path);

  ZipArchive archive_;
  std::string place_, root_;           // the only folder in the archive, with its slash
  std::vector<std::size_t> storages_;  // their indices among the archive's entries
  ExportedProgram program_;
  std::vector<ProgramWeight> weights_, constants_;
};

}  // namespace kindling
