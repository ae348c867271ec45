#include "cli/data/data_fetch.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/config/command_line.h"
#include "cli/config/exit_codes.h"
#include "cli/config/unquoted.h"
#include "cli/data/file_check.h"
#include "cli/data/published_data.h"
#include "kindling/base/error.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"
#include "kindling/data/data_directory.h"

namespace kindling {

void refuse_fetch(const std::string& name) {
  std::vector<std::string> names;
  for (const PublishedData& data : published_data()) names.emplace_back(data.name);
  const std::string guess = nearest(name, names);
  throw ConfigError({.place = "kindling data fetch",
                     .found = "'" + one_line(name) + "' has no files that are known",
                     .wanted = "one of " + list_names(names),
                     .remedy = guess.empty() ? "" : "did you mean '" + guess + "'?"});
}

namespace {

const PublishedData& find_published(const std::string& name) {
  for (const PublishedData& data : published_data())
    if (data.name == name) return data;
  refuse_fetch(name);
}

// What is known of a data set on this machine.
struct FetchReport {
  const PublishedData& data;
  std::filesystem::path root;
  std::vector<CheckedFile> files;     // that Kindling reads
  std::vector<CheckedFile> archives;  // one, if the files need it

  bool is_complete() const {
    return std::ranges::all_of(files, [](const CheckedFile& file) { return file.is_usable(); });
  }
  // Some files are in `root` itself, not in the directory of the archive, which would then be ignored.
  bool is_unpacked_in_root() const { return files.front().path.parent_path() == root; }
  std::vector<CheckedFile> all() const {
    std::vector<CheckedFile> all = archives;
    all.insert(all.end(), files.begin(), files.end());
    return all;
  }
};

FetchReport check_published(const PublishedData& data, const std::filesystem::path& root) {
  FetchReport report{.data = data, .root = root, .files = check_files(data, root), .archives = {}};
  if (!data.archive.empty() && !report.is_complete()) report.archives.push_back(check_archive(data, root));
  return report;
}

// The file that is downloaded for one that Kindling reads. Single files come compressed, and are then read
// instead of unpacked ones.
std::filesystem::path download_of(const PublishedData& data, const std::filesystem::path& file) {
  const bool is_unpacked = data.archive.empty() && file.extension() != ".gz";
  return is_unpacked ? std::filesystem::path(file.string() + ".gz") : file;
}

std::string url_of(const PublishedData& data, const std::filesystem::path& file) {
  return std::string(data.url) + download_of(data, file).filename().string();
}

void print_files(const FetchReport& report) {
  std::vector<std::vector<std::string>> rows;
  for (const CheckedFile& file : report.all())
    rows.push_back({file.path.lexically_relative(report.root).string(), std::to_string(file.wanted.size),
                    file.wanted.sha256.empty() ? "-" : std::string(file.wanted.sha256),
                    state_text(file.state)});
  std::cout << report.data.name << " is read from " << report.root.string() << "\n\n"
            << table_text({{.title = "file"},
                           {.title = "bytes", .right = true},
                           {.title = "SHA-256"},
                           {.title = "state"}},
                          rows);
  for (const CheckedFile& file : report.all())
    if (file.state == FileState::wrong)
      std::cout << "wrong: " << file.path.string() << ": " << file.problem << "\n";
  if (std::ranges::any_of(report.files, [](const CheckedFile& file) { return file.wanted.sha256.empty(); }))
    std::cout << "-: no SHA-256 is known for this file; only its size is compared\n";
}

// Prints the commands that bring the files that are missing or wrong.
void print_commands(const FetchReport& report) {
  const std::string root = shell_word(report.root.string());
  std::cout << "\nThese commands download what is missing or wrong (this program does not):\n"
            << "  mkdir -p " << root << "\n";
  const bool has_archive = !report.archives.empty();
  for (const CheckedFile& file : has_archive ? report.archives : report.files)
    if (!file.is_usable())
      std::cout << "  curl -fL -o " << shell_word(download_of(report.data, file.path).string()) << " "
                << shell_word(url_of(report.data, file.path)) << "\n";
  if (has_archive)
    std::cout << "  tar -xzf " << shell_word(report.archives.front().path.string()) << " -C " << root
              << (report.is_unpacked_in_root() ? " --strip-components=1" : "") << "\n";
  std::cout << "  kindling data fetch " << report.data.name;
  if (report.root != data_directory(std::string(report.data.name)))
    std::cout << " " << shell_word("data.root=" + report.root.string());
  std::cout << "\n";
}

void print_json(const FetchReport& report) {
  for (const CheckedFile& file : report.all()) {
    nlohmann::ordered_json json{{"file", file.path.string()},
                                {"bytes", file.wanted.size},
                                {"sha256", nullptr},
                                {"state", state_text(file.state)},
                                {"usable", file.is_usable()}};
    if (!file.wanted.sha256.empty()) json["sha256"] = file.wanted.sha256;
    if (!file.problem.empty()) json["found"] = file.problem;
    if (report.data.archive.empty() || file.path.filename() == report.data.archive)
      json["url"] = url_of(report.data, file.path);
    std::cout << json.dump() << "\n";
  }
}

}  // namespace

int fetch_data(const RunConfig& config, bool as_json) {
  const PublishedData& data = find_published(config.data_name());
  const std::map<std::string, std::string> values = config.values();
  const auto root = values.find("data.root");
  const FetchReport report =
      check_published(data, root == values.end() ? data_directory(std::string(data.name))
                                                 : std::filesystem::path(unquoted(root->second)));
  if (as_json) {
    print_json(report);
  } else {
    print_files(report);
    if (!report.is_complete()) print_commands(report);
  }
  return report.is_complete() ? 0 : kDataErrorCode;
}

}  // namespace kindling
