#include "formats/file_start.h"

#include <algorithm>
#include <cctype>

namespace kindling {
namespace {

using namespace std::string_view_literals;

struct StartRow {
  std::string_view start;
  const char *found, *remedy;
};

constexpr const char* kDownload = "download the file again, and look into it: it may say why";

constexpr StartRow kStarts[] = {
    {"version https://git-lfs.github.com/spec/"sv,
     "it is a Git LFS pointer, which names the file but is not it", "fetch the file: git lfs pull"},
    {"\x1f\x8b"sv, "it is compressed by gzip", "unpack it: gunzip"},
    {"\x89HDF\r\n"sv, "it is an HDF5 file, such as weights of Keras",
     "save the weights as safetensors in Python"},
    {"\x93NUMPY"sv, "it is a NumPy array (.npy)", "save a dict of tensors with torch.save"},
    {"PK\3\4"sv, "it is a zip archive, as torch.save writes it", "read it as a file of torch.save"},
};

bool begins_with_word(std::string_view text, std::string_view word) {
  return text.size() >= word.size() && std::equal(word.begin(), word.end(), text.begin(), [](char a, char b) {
           return a == static_cast<char>(std::tolower(static_cast<unsigned char>(b)));
         });
}

}  // namespace

KnownStart known_start(std::string_view start) {
  for (const StartRow& row : kStarts)
    if (start.starts_with(row.start)) return {row.found, row.remedy};
  if (start.size() > 1 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5)
    return {"it is a plain Python pickle, which torch.save did not write",
            "save it in Python with torch.save"};
  constexpr std::size_t kTarMagic = 257;
  if (start.size() > kTarMagic && start.substr(kTarMagic).starts_with("ustar"))
    return {"it is a tar archive",
            "unpack it; if the first versions of PyTorch wrote it, save it again in Python"};
  const std::string_view text =
      start.substr(std::min(start.find_first_not_of("\xef\xbb\xbf \t\r\n"), start.size()));
  for (const std::string_view word : {"<!doctype html"sv, "<html"sv, "<?xml"sv})
    if (begins_with_word(text, word))
      return {word == "<?xml" ? "it is an XML page" : "it is an HTML page, not the file that it was to be",
              kDownload};
  return {};
}

}  // namespace kindling
