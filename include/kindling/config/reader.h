#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kindling/base/export.h"
#include "kindling/config/document.h"
#include "kindling/config/options.h"

namespace kindling {

// Moves a document's values into options and collects everything that is wrong with it. Nothing throws
// before finish(): an option whose value is wrong keeps its default until then.
// The document must outlive the reader. Paths are dotted: "trainer", "model.name", "" for the top level;
// "optimizer.groups[0]" is the first table of an array of tables.
class KINDLING_API ConfigReader {
 public:
  explicit ConfigReader(const ConfigDocument& document);
  ~ConfigReader();
  ConfigReader(const ConfigReader&) = delete;
  ConfigReader& operator=(const ConfigReader&) = delete;

  // Reads the keys of one table that `options` names; absent keys, or an absent table, keep the defaults.
  // Several sets may read from one table. A relative value of type std::filesystem::path is resolved against
  // the folder of the file it was written in, or the current one for an override; what shall count from the
  // current folder in any case is a std::string.
  void read(std::string_view table, const OptionSet& options);

  // Whether the key or table is there. A table asked for is a known one, its keys are not yet read.
  bool has(std::string_view path) const;

  // How many tables the array at `path` has, `[[path]]` in TOML; 0 when it is absent or something else (which
  // is then an error of finish()). Its tables are known ones, their keys are not yet read.
  std::size_t num_tables(std::string_view path);

  // The string at `path`; empty when absent or not a string (which is then an error of finish()).
  std::optional<std::string> read_name(std::string_view path);

  // Adds a finding of the caller at the place of `path` (of its table, where it is absent). With `candidates`
  // the message ends with the nearest of them to the string at `path`, or with all of them.
  void error(std::string_view path, const std::string& text, std::span<const std::string> candidates = {});

  // Takes a key, or a table with all in it, as read: for when an error before leaves nobody to read it.
  void skip(std::string_view path);

  // So far, unread keys aside.
  std::size_t num_errors() const noexcept;

  // Every key or table that nobody has read is an error now. Throws one ConfigError with all errors in the
  // order of files and lines; returns when there is none.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kindling
