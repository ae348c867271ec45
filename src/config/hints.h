#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kindling::config {

// Names of keys and values in other frameworks.
struct OtherNames {
  // Spelling does not matter: case, and '-' for '_'.
  static std::string spelling(std::string_view name);
  // Return an empty text for names that are not known.
  std::string key_for(std::string_view other) const;
  std::string value_for(const std::string& path, std::string_view other) const;

  std::map<std::string, std::string> keys;                            // "learning_rate" → "optimizer.lr"
  std::map<std::pair<std::string, std::string>, std::string> values;  // of a key: "fp16" → "16-mixed"
};

struct UnknownKey {
  std::string table;         // "trainer"; empty: the top level
  std::string key;           // "max_epoch"
  bool is_override = false;  // the command line names a key with its table
};

using KeysByTable = std::map<std::string, std::vector<std::string>, std::less<>>;

// Returns "did you mean 'max_epochs'?"; empty without a guess. Keys of the same table come first: the one
// that another framework's name stands for, else the one spelled alike, else up to three that share a word
// (step_size for steps), followed by a key of another table.
std::string hint_for(const UnknownKey& unknown, const KeysByTable& known, const OtherNames& other_names);

}  // namespace kindling::config
