#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "kindling/base/export.h"

namespace kindling {

struct ConfigTree;

// A config: one or several TOML texts and command line overrides, merged. Every key and value keeps the place
// it was written at. Move-only; not changed by reading, so several threads may read one.
class KINDLING_API ConfigDocument {
 public:
  // Texts over 1 MiB or nested deeper than 64 are refused before they are parsed.
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMaxDepth = 64;

  ConfigDocument();
  ~ConfigDocument();
  ConfigDocument(ConfigDocument&& other) noexcept;
  ConfigDocument& operator=(ConfigDocument&& other) noexcept;

  // Reads a TOML file; its relative paths count from its folder. Throws ConfigError.
  static ConfigDocument load(const std::filesystem::path& file);

  // Reads TOML text. `name` stands for the file in messages, relative paths count from `base_dir`.
  // Throws ConfigError.
  static ConfigDocument parse(std::string_view text, std::string_view name, std::filesystem::path base_dir);

  // Puts `later` over this: tables key by key, anything else is replaced as a whole.
  void merge(ConfigDocument later);

  // Puts one override over this: "trainer.max_epochs=3". The value is TOML; what is no TOML (a bare word, a
  // path) is a string. Relative paths count from the current folder. Throws ConfigError.
  void set(std::string_view assignment);

 private:
  friend class ConfigReader;
  std::unique_ptr<ConfigTree> tree_;
};

}  // namespace kindling
