#include "config/hints.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/joined.h"
#include "kindling/base/suggest.h"

namespace kindling::config {
namespace {

constexpr std::size_t kMostWithSameWord = 3;  // more of them would not be a guess

// "did you mean 'a', 'b' or 'c'?"; empty without guesses.
std::string question(std::span<const std::string> guesses) {
  std::string text;
  for (std::size_t i = 0; i < guesses.size(); ++i)
    text += (i == 0 ? "did you mean '" : i + 1 == guesses.size() ? " or '" : ", '") + guesses[i] + "'";
  return text.empty() ? text : text + "?";
}

// The words of a name in the singular: {"total", "step"} of "total_steps".
std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> words;
  for (std::size_t begin = 0, end = 0; begin <= name.size(); begin = end + 1) {
    end = std::min(name.find('_', begin), name.size());
    std::string word = name.substr(begin, end - begin);
    if (word.size() > 3 && word.ends_with('s')) word.pop_back();
    if (!word.empty()) words.push_back(std::move(word));
  }
  return words;
}

// True if one list has every word of the other.
bool is_part_of_other(std::vector<std::string> a, std::vector<std::string> b) {
  if (a.empty() || b.empty()) return false;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return std::includes(a.begin(), a.end(), b.begin(), b.end()) ||
         std::includes(b.begin(), b.end(), a.begin(), a.end());
}

// Returns the candidates with all words of the key, or with no others than its words; none if there are many.
std::vector<std::string> with_same_word(const std::string& key, std::span<const std::string> candidates) {
  const std::vector<std::string> words = words_of(OtherNames::spelling(key));
  std::vector<std::string> found;
  for (const std::string& candidate : candidates)
    if (candidate != key && is_part_of_other(words, words_of(candidate))) found.push_back(candidate);
  return found.size() <= kMostWithSameWord ? found : std::vector<std::string>();
}

std::string in_table(const std::string& table, const std::string& key) {
  return table.empty() ? key : table + "." + key;
}

// Returns the path of a key of this name in another table; empty if there is none.
std::string same_key_elsewhere(const UnknownKey& unknown, const KeysByTable& known) {
  for (const auto& [table, keys] : known)
    if (table != unknown.table && std::find(keys.begin(), keys.end(), unknown.key) != keys.end())
      return in_table(table, unknown.key);
  return {};
}

}  // namespace

std::string OtherNames::spelling(std::string_view name) {
  std::string plain = lower_case(name);
  std::replace(plain.begin(), plain.end(), '-', '_');
  return plain;
}

std::string OtherNames::key_for(std::string_view other) const {
  const auto found = keys.find(spelling(other));
  return found == keys.end() ? "" : found->second;
}

std::string OtherNames::value_for(const std::string& path, std::string_view other) const {
  const auto found = values.find({path, spelling(other)});
  return found == values.end() ? "" : found->second;
}

std::string hint_for(const UnknownKey& unknown, const KeysByTable& known, const OtherNames& other_names) {
  const auto& [table, key, is_override] = unknown;
  const auto found = known.find(table);
  const std::vector<std::string> here = found == known.end() ? std::vector<std::string>() : found->second;
  std::string path = other_names.key_for(key);
  if (path == in_table(table, key)) path.clear();
  const bool is_here = !table.empty() && path.starts_with(table + ".");
  const std::string guess = is_here ? "" : nearest(key, here);
  std::vector<std::string> guesses;
  if (!guess.empty()) guesses = {guess};
  if (guess.empty() && !is_here && !table.empty()) guesses = with_same_word(key, here);
  if (is_override)
    for (std::string& each : guesses) each = in_table(table, each);
  if (guess.empty() && path.empty()) path = same_key_elsewhere(unknown, known);
  if (guess.empty() && !path.empty()) guesses.push_back(path);
  return question(guesses);
}

}  // namespace kindling::config
