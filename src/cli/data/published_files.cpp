#include "cli/data/published_files.h"

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/config/command_line.h"
#include "cli/config/exit_codes.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/sha256.h"
#include "kindling/base/text.h"
#include "kindling/data/data_directory.h"
#include "kindling/formats/gzip.h"

namespace kindling {
namespace {

// The sums of downloads are those of TensorFlow Datasets (url_checksums), which other projects repeat. Those
// of unpacked files are listed where at least two projects publish the same.
const std::vector<PublishedData>& data_sets() {
  static const std::vector<PublishedData> kSets{
      {.name = "mnist",
       .files =
           {{.name = "train-images-idx3-ubyte",
             .sum = {47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
             .compressed = {9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"}},
            {.name = "train-labels-idx1-ubyte",
             .sum = {60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
             .compressed = {28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"}},
            {.name = "t10k-images-idx3-ubyte",
             .sum = {7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
             .compressed = {1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"}},
            {.name = "t10k-labels-idx1-ubyte",
             .sum = {10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
             .compressed = {4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}}}},
      {.name = "fashion_mnist",
       .files =
           {{.name = "train-images-idx3-ubyte",
             .sum = {47040016},
             .compressed = {26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"}},
            {.name = "train-labels-idx1-ubyte",
             .sum = {60008},
             .compressed = {29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"}},
            {.name = "t10k-images-idx3-ubyte",
             .sum = {7840016},
             .compressed = {4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"}},
            {.name = "t10k-labels-idx1-ubyte",
             .sum = {10008},
             .compressed = {5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"}}}},
      {.name = "cifar10",
       .archive = "cifar-10-binary.tar.gz",
       .archive_sum = {170052171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
       .archive_folder = "cifar-10-batches-bin",
       .files = {{.name = "data_batch_1.bin",
                  .sum = {30730000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"}},
                 {.name = "data_batch_2.bin",
                  .sum = {30730000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"}},
                 {.name = "data_batch_3.bin",
                  .sum = {30730000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"}},
                 {.name = "data_batch_4.bin",
                  .sum = {30730000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"}},
                 {.name = "data_batch_5.bin",
                  .sum = {30730000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"}},
                 {.name = "test_batch.bin",
                  .sum = {30730000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"}}}},
      {.name = "cifar100",
       .archive = "cifar-100-binary.tar.gz",
       .archive_sum = {168513733, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"},
       .archive_folder = "cifar-100-binary",
       .files = {{.name = "train.bin", .sum = {153700000}}, {.name = "test.bin", .sum = {30740000}}}}};
  return kSets;
}

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

struct FoundSum {
  std::int64_t size = 0;
  std::string sha256{};

  FileState state_for(const FileSum& wanted) const {
    if (size != wanted.size) return FileState::wrong;
    if (wanted.sha256.empty()) return FileState::unverified;
    return sha256 == wanted.sha256 ? FileState::right : FileState::wrong;
  }
};

FoundSum sum_of_file(const std::filesystem::path& path) {
  const InputFile file(path);
  Sha256 sum;
  std::string piece;
  for (std::size_t offset = 0; offset < file.size(); offset += piece.size()) {
    piece.resize(std::min(kPieceBytes, file.size() - offset));
    file.read(offset, piece.data(), piece.size());
    sum.update(piece);
  }
  return {static_cast<std::int64_t>(file.size()), sum.hex()};
}

// Stops at the first piece beyond the wanted size, whatever the file expands to.
FoundSum sum_of_content(const std::filesystem::path& path, const FileSum& wanted) {
  constexpr std::size_t kMaxCompressedBytes = std::size_t{1} << 28;
  const std::string bytes = read_file(path, kMaxCompressedBytes);
  GzipReader reader(bytes, path.string());
  Sha256 sum;
  std::string piece(kPieceBytes, '\0');
  FoundSum found;
  while (found.size <= wanted.size) {
    const std::size_t count = reader.read(piece.data(), piece.size());
    sum.update(piece.data(), count);
    found.size += static_cast<std::int64_t>(count);
    if (count < piece.size()) break;
  }
  found.sha256 = sum.hex();
  return found;
}

std::string sum_text(const FoundSum& found, const FileSum& wanted) {
  std::string text = std::to_string(found.size) + " bytes";
  if (found.size == wanted.size) text += ", SHA-256 " + found.sha256;
  return text;
}

// `content`: the sum after decompression, of a file that may have been compressed again.
void compare_file(CheckedFile& file, const FileSum* content) try {
  const FoundSum found = sum_of_file(file.path);
  file.state = found.state_for(file.wanted);
  if (file.state != FileState::wrong) return;
  file.problem = sum_text(found, file.wanted);
  if (content == nullptr || content->sha256.empty()) return;
  if (sum_of_content(file.path, *content).state_for(*content) == FileState::right)
    file.state = FileState::repacked;
} catch (const Error& error) {
  file.state = FileState::wrong;
  if (file.problem.empty()) file.problem = error.what();
}

// Returns "ok", "ok, compressed differently", …
const char* state_text(FileState state) {
  switch (state) {
    case FileState::right:
      return "ok";
    case FileState::repacked:
      return "ok, compressed differently";
    case FileState::unverified:
      return "size is right";
    case FileState::missing:
      return "missing";
    case FileState::wrong:
      break;
  }
  return "wrong";
}

void print_files(const std::vector<CheckedFile>& files, const std::filesystem::path& root) {
  std::vector<std::vector<std::string>> rows;
  for (const CheckedFile& file : files)
    rows.push_back({file.path.lexically_relative(root).string(), std::to_string(file.wanted.size),
                    file.wanted.sha256.empty() ? "-" : std::string(file.wanted.sha256),
                    state_text(file.state)});
  std::cout << table_text(
      {{.title = "file"}, {.title = "bytes", .right = true}, {.title = "SHA-256"}, {.title = "state"}}, rows);
  for (const CheckedFile& file : files)
    if (file.state == FileState::wrong)
      std::cout << "wrong: " << file.path.string() << ": " << file.problem << "\n";
  if (std::ranges::any_of(files, [](const CheckedFile& file) { return file.wanted.sha256.empty(); }))
    std::cout << "-: no SHA-256 is known for this file; only its size is compared\n";
  std::cout << "\n";
}

void print_json(const std::vector<CheckedFile>& files) {
  for (const CheckedFile& file : files) {
    nlohmann::ordered_json json{{"file", file.path.string()},
                                {"bytes", file.wanted.size},
                                {"sha256", nullptr},
                                {"state", state_text(file.state)},
                                {"usable", file.is_usable()}};
    if (!file.wanted.sha256.empty()) json["sha256"] = file.wanted.sha256;
    if (!file.problem.empty()) json["found"] = file.problem;
    std::cout << json.dump() << "\n";
  }
}

}  // namespace

std::span<const PublishedData> published_data() { return data_sets(); }

std::vector<CheckedFile> check_files(const PublishedData& data, const std::filesystem::path& root) {
  std::filesystem::path folder = root;
  if (!data.archive_folder.empty() && !std::filesystem::exists(root / data.files.front().name))
    folder = root / data.archive_folder;
  std::vector<CheckedFile> checked;
  for (const PublishedFile& file : data.files) {
    const bool has_compressed = file.compressed.size > 0;
    const std::filesystem::path plain = folder / file.name, packed = plain.string() + ".gz";
    const bool reads_plain =
        !has_compressed || (std::filesystem::exists(plain) && !std::filesystem::exists(packed));
    CheckedFile& one = checked.emplace_back();
    one.path = reads_plain ? plain : packed;
    one.wanted = reads_plain ? file.sum : file.compressed;
    if (std::filesystem::exists(one.path)) compare_file(one, reads_plain ? nullptr : &file.sum);
  }
  const bool is_complete = std::ranges::all_of(checked, &CheckedFile::is_usable);
  if (CheckedFile archive{.path = root / data.archive, .wanted = data.archive_sum};
      !is_complete && !data.archive.empty() && std::filesystem::exists(archive.path)) {
    compare_file(archive, nullptr);
    checked.insert(checked.begin(), archive);
  }
  return checked;
}

int check_published_files(const ConfigTables& config, bool as_json) {
  const std::string& name = config.data.name.name;
  const auto data = std::ranges::find(published_data(), name, &PublishedData::name);
  if (data == published_data().end()) return 0;
  const auto values = config.values();
  const auto set_root = values.find("data.root");
  const std::filesystem::path root =
      set_root == values.end() ? data_directory(name) : std::filesystem::path(unquoted(set_root->second));
  const std::vector<CheckedFile> files = check_files(*data, root);
  if (as_json) {
    print_json(files);
  } else {
    std::cout << name << " is read from " << root.string() << "\n\n";
    print_files(files, root);
  }
  return std::ranges::all_of(files, &CheckedFile::is_usable) ? 0 : kDataErrorCode;
}

}  // namespace kindling
