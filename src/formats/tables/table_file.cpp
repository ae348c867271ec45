#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "base/error_kind.h"
#include "base/joined.h"
#include "formats/tables/wrong_values.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/text.h"
#include "kindling/formats/gzip.h"
#include "kindling/formats/table.h"

// Chooses the reader of a file by its name and its first bytes.
namespace kindling {
namespace {

// The extension in lower case, without that of a compression: ".csv" for "a.CSV.gz".
std::string extension_of(const std::filesystem::path& path) {
  std::string extension = lower_case(path.extension().string());
  return extension == ".gz" ? lower_case(path.stem().extension().string()) : extension;
}

std::string decompressed(std::string_view bytes, const std::string& place, std::size_t max_bytes) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  GzipReader reader(bytes, place);
  std::string text;
  for (;;) {
    const std::size_t before = text.size();
    if (before > max_bytes)
      throw DataError({.place = place,
                       .found = "more than " + std::to_string(max_bytes) + " bytes of text",
                       .wanted = "a smaller file"});
    text.resize(before + kPiece);
    const std::size_t count = reader.read(text.data() + before, kPiece);
    text.resize(before + count);
    if (count < kPiece) return text;
  }
}

void refuse_other_formats(std::string_view bytes, const std::string& place) {
  struct Format {
    std::string_view start, name, remedy;
  };
  static constexpr Format kFormats[] = {
      {"PK\x03\x04", "a zip archive, as Excel's .xlsx is one", "save the sheet as \"CSV UTF-8\""},
      {"\xd0\xcf\x11\xe0", "a file of Excel or Word", "save the sheet as \"CSV UTF-8\""},
      {"BZh9\x31\x41\x59\x26", "compressed by bzip2", "decompress it: bunzip2 FILE"},
      {"\xfd\x37zXZ", "compressed by xz", "decompress it: unxz FILE"},
      {"\x28\xb5\x2f\xfd", "compressed by zstd", "decompress it: unzstd FILE"},
      {"PAR1", "Parquet",
       "write it as CSV in Python: import pandas; pandas.read_parquet(FILE).to_csv(\"table.csv\", "
       "index=False)"},
      {std::string_view("ARROW1\0\0", 8), "Arrow or Feather",
       "write it as CSV in Python: import pandas; pandas.read_feather(FILE).to_csv(\"table.csv\", "
       "index=False)"},
      {"\x89HDF", "HDF5", "write its table as CSV (pandas: to_csv(FILE, index=False))"},
      {"SQLite format 3", "a database of SQLite",
       "export the table: sqlite3 -header -csv FILE 'select * from T'"},
      {"version https://git-lfs", "a pointer of Git LFS", "get the file itself: git lfs pull"}};
  for (const auto& [start, name, remedy] : kFormats)
    if (bytes.starts_with(start) && (name != "Parquet" || bytes.ends_with(start)))
      throw DataError({.place = place,
                       .found = "the file is " + std::string(name),
                       .wanted = "a CSV or JSON lines file",
                       .remedy = std::string(remedy)});
  const std::string first = lower_case(std::string(bytes.substr(0, 256)));
  const std::size_t begin = first.find_first_not_of(" \t\r\n");
  const std::string_view rest = std::string_view(first).substr(std::min(begin, first.size()));
  if (rest.starts_with("<!doctype html") || rest.starts_with("<html"))
    throw DataError({.place = place,
                     .found = "the file is a page of HTML, perhaps the error of a download",
                     .wanted = "a CSV or JSON lines file"});
}

bool is_array(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && text[begin] == '[';
}

// Writes each element of a JSON array on a line. Elements that are not objects stay wrong. Throws DataError
// if the array does not end with the text.
std::string lines_of_array(std::string_view text, const std::string& place) {
  std::string lines;
  lines.reserve(text.size());
  int depth = 0;
  bool is_in_text = false;
  std::size_t end = std::string_view::npos;
  for (std::size_t i = 0; i < text.size() && end == std::string_view::npos; ++i) {
    const char c = text[i];
    if (is_in_text) {
      lines += c;
      if (c == '\\' && i + 1 < text.size()) lines += text[++i];
      is_in_text = c != '"';
      continue;
    }
    is_in_text = c == '"';
    if ((c == '[' || c == '{') && depth++ == 0) continue;
    if ((c == ']' || c == '}') && --depth == 0) {
      end = i + 1;
      continue;
    }
    const bool ends_line = c == ',' && depth == 1;
    lines += ends_line ? '\n' : c == '\n' || c == '\r' ? ' ' : c;
  }
  if (end == std::string_view::npos || text.find_first_not_of(" \t\r\n", end) != std::string_view::npos)
    throw DataError({.place = place,
                     .found = end == std::string_view::npos ? "the file ends inside of its array"
                                                            : "there is text after the end of the array",
                     .wanted = "a JSON array of objects"});
  return lines;
}

}  // namespace

bool is_json_lines_file(const std::filesystem::path& path) {
  const std::string extension = extension_of(path);
  return extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
}

Table read_table(const std::filesystem::path& path, const TableOptions& options) {
  return read_table(path, options, nullptr);
}

Table read_table(const std::filesystem::path& path, const TableOptions& options, WrongValues* wrong) {
  const std::string place = path.string();
  std::string text = with_errors_as<DataError>([&] { return read_file(path, options.max_bytes); });
  if (is_gzip(text)) text = decompressed(text, place, options.max_bytes);
  refuse_other_formats(text, place);
  if (!is_json_lines_file(path)) return parse_table(text, place, options, wrong);
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  if (extension_of(path) == ".json" && is_array(text)) text = lines_of_array(text, place);
  return parse_json_lines(text, place, options, wrong);
}

}  // namespace kindling
