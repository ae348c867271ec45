#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "kindling/base/export.h"

namespace kindling {

struct ConfigTree;

// A config: one or several TOML texts and command-line overrides, merged. Every key and value keeps its
// source location. Move-only. Reading does not change it, so several threads may read one.
class KINDLING_API ConfigDocument {
 public:
  // Texts over 1 MiB or nested deeper than 64 are rejected before parsing.
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMaxDepth = 64;

  ConfigDocument();
  ~ConfigDocument();
  ConfigDocument(ConfigDocument&& other) noexcept;
  ConfigDocument& operator=(ConfigDocument&& other) noexcept;

  // Reads a TOML file; its relative paths are relative to its directory. Throws ConfigError.
  static ConfigDocument load(const std::filesystem::path& file);

  // Reads TOML text. Messages use `name` as the file name; relative paths are relative to `base_dir`. Throws
  // ConfigError.
  static ConfigDocument parse(std::string_view text, std::string_view name, std::filesystem::path base_dir);

  // Merges `later` over this document: tables key by key, any other value is replaced as a whole.
  void merge(ConfigDocument later);

  // Applies one override: "trainer.max_epochs=3". The value is TOML; a value that is not valid TOML (a bare
  // word, a path) is a string. Relative paths are relative to the current directory. Messages use `source`.
  // Throws ConfigError.
  void set(std::string_view assignment, std::string_view source = "command line");

 private:
  friend class ConfigReader;
  std::unique_ptr<ConfigTree> tree_;
};

}  // namespace kindling
