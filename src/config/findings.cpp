#include "config/findings.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "base/utf8.h"
#include "kindling/base/error.h"
#include "kindling/base/text.h"

namespace kindling::config {
namespace {

constexpr std::size_t kMaxShownLineBytes = 200;  // longer lines are not shown below a message

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, text.substr(0, end).ends_with('\r') ? end - 1 : end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// The lines of texts; each text is split only once, however many findings it has.
using SourceLines = std::unordered_map<const ConfigSource*, std::vector<std::string_view>>;

std::string_view line_at(const ConfigPlace& place, SourceLines& cut) {
  if (place.source == nullptr || place.line == 0) return {};
  std::vector<std::string_view>& lines = cut[place.source];
  if (lines.empty()) lines = lines_of(place.source->text);
  return place.line <= lines.size() ? lines[place.line - 1] : std::string_view{};
}

std::string head_of(const Finding& finding) {
  const ConfigPlace& place = finding.place;
  std::string head = place.source == nullptr ? "config" : place.source->name;
  if (place.line > 0) head += ':' + std::to_string(place.line) + ':' + std::to_string(place.column);
  return head + ": error: " + finding.text;
}

// "    3 | max_epoch = 10" and the carets below.
std::string snippet_of(const Finding& finding, std::string_view line) {
  const std::string number = std::to_string(finding.place.line);
  const std::size_t width = std::max<std::size_t>(5, number.size());
  std::string text = std::string(width - number.size(), ' ') + number + " | " + one_line(line) + '\n';
  text += std::string(width, ' ') + " | " + std::string(finding.place.column - 1, ' ') + '^';
  text += std::string(std::max<std::size_t>(1, finding.place.length) - 1, '~');
  return text + (finding.hint.empty() ? "" : " " + finding.hint) + '\n';
}

std::string text_of(const Finding& finding, SourceLines& lines) {
  const std::string_view line = line_at(finding.place, lines);
  const bool shows_line = finding.shows_line && !line.empty() && line.size() <= kMaxShownLineBytes;
  if (shows_line) return head_of(finding) + '\n' + snippet_of(finding, line);
  return head_of(finding) + (finding.hint.empty() ? "" : "; " + finding.hint) + '\n';
}

}  // namespace

ConfigPlace place_at(const ConfigSource& source, std::size_t offset) {
  const std::string_view before = std::string_view(source.text).substr(0, offset);
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  std::size_t column = 1;
  for_each_character(before.substr(line_start), [&](const Utf8Character&, std::string_view) { ++column; });
  const auto line = 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
  return {.source = &source, .line = line, .column = column};
}

void throw_findings(std::vector<Finding> findings, const std::vector<const ConfigSource*>& sources) {
  std::unordered_map<const ConfigSource*, std::size_t> ranks;
  for (const ConfigSource* source : sources) ranks.emplace(source, ranks.size());
  ranks.emplace(nullptr, ranks.size());  // findings without a place come last
  const auto rank = [&](const Finding& finding) {
    const ConfigPlace& place = finding.place;
    return std::tuple(ranks.at(place.source), place.line, place.column);
  };
  std::stable_sort(findings.begin(), findings.end(),
                   [&](const Finding& left, const Finding& right) { return rank(left) < rank(right); });
  SourceLines lines;
  std::string text;
  for (const Finding& finding : findings) text += text_of(finding, lines);
  const std::size_t count = findings.size();
  throw ConfigError(
      {.found = text + std::to_string(count) + (count == 1 ? " error" : " errors") + ", nothing was run"});
}

}  // namespace kindling::config
