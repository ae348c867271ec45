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

// Moves a document's values into options and collects all errors. Nothing throws before finish(): an option
// with a wrong value keeps its default until then. The document must outlive the reader. Paths are dotted:
// "trainer", "model.name", "" for the top level; "optimizer.groups[0]" is the first table of an array of
// tables.
class KINDLING_API ConfigReader {
 public:
  explicit ConfigReader(const ConfigDocument& document);
  ~ConfigReader();
  ConfigReader(const ConfigReader&) = delete;
  ConfigReader& operator=(const ConfigReader&) = delete;

  // Names of other frameworks, for hints. An unknown key `other`, in whatever table, gets the hint "did you
  // mean 'path'?"; a value `other` that the key at `path` refuses gets "did you mean \"value\"?". Neither
  // depends on case, nor on '-' for '_'. Call both before reading.
  void add_key_hint(std::string_view other, std::string_view path);
  void add_value_hint(std::string_view path, std::string_view other, std::string_view value);

  // The hint for the key at `path` if it is unknown, instead of a guess.
  void add_unknown_hint(std::string_view path, std::string_view hint);

  // Reads the keys of one table that `options` names; for absent keys, or an absent table, the defaults
  // remain. Several sets may read from one table. A relative std::filesystem::path is resolved against the
  // directory of its config file, or the current directory for an override. Use a std::string for paths that
  // are always relative to the current directory.
  void read(std::string_view table, const OptionSet& options);

  // True if the key or table exists. A table that was asked for counts as known; its keys are still unread.
  bool has(std::string_view path) const;

  // Returns how many tables the array at `path` has, `[[path]]` in TOML; 0 if it is absent or something else
  // (which finish() then reports). Its tables count as known; their keys are still unread.
  std::size_t num_tables(std::string_view path);

  // Returns the string at `path`; nothing if absent or not a string (which finish() then reports).
  std::optional<std::string> read_name(std::string_view path);

  // Adds an error of the caller at the location of `path` (or of its table, if absent). With `candidates` the
  // message ends with the nearest of them to the string at `path`, or with all of them.
  void error(std::string_view path, const std::string& text, std::span<const std::string> candidates = {});

  // Marks a key, or a table with all its keys, as read: for tables that an earlier error leaves without a
  // reader. "" is the whole document.
  void skip(std::string_view path);

  // The errors so far, not counting unread keys.
  std::size_t num_errors() const noexcept;

  // Reports every unread key and table as an error. Throws one ConfigError with all errors in the order of
  // files and lines, if there are any.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kindling
