#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kindling {

// Returns a TOML value as tables show it: on one line, and a string without its quotes.
std::string shown_value(const std::string& toml);

// Finds the keys in which the configs of many runs differ. Reads only what `config.toml` of a run looks like,
// one "key = value" per line, because a TOML parser takes too long for thousands of files.
class ConfigDifferences {
 public:
  // Adds a config; runs count from 0. Lines of other forms are ignored.
  void add(std::string text);
  // Adds a run without a config: it does not make keys differ.
  void add_unknown() { runs_.push_back({.is_known = false}); }

  // Returns the keys that differ between known configs, in the order of the configs, without those that name
  // the run's directory.
  std::vector<std::string> keys() const;
  // Returns the value of a run as TOML; empty if it has none.
  std::string value(std::size_t run, const std::string& key) const;

 private:
  struct Line {
    std::string_view text{};  // as written
    std::string key{};        // "trainer.max_epochs"; empty: not an assignment
    std::string value{};
  };
  struct Run {
    bool is_known = true;
    std::map<std::string, std::string> differing{};  // from the first config; "" for keys that it lacks
  };
  static std::vector<Line> parsed(std::string_view text);
  bool add_similar(std::string_view text);

  std::string first_text_{};  // which first_ points into
  std::vector<Line> first_{};
  std::vector<std::string> more_keys_{};  // that the first config does not have
  std::map<std::string, std::string> first_values_{};
  std::vector<Run> runs_{};
};

}  // namespace kindling
