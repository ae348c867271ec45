#include "cli/data/published_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "cli/commands/program_run.h"
#include "kindling/base/sha256.h"
#include "support/mnist_files.h"
#include "support/scratch.h"

namespace kindling {
namespace {

ProgramRun check(const std::string& name, const std::filesystem::path& root, bool as_json = false) {
  std::vector<std::string> words{"data", "check", name, "data.root=" + root.string()};
  if (as_json) words.emplace_back("--json");
  return run_program(words);
}

std::string with_dir(std::string text, const std::filesystem::path& folder) {
  for (std::size_t at = 0; (at = text.find(folder.string(), at)) != std::string::npos;)
    text.replace(at, folder.string().size(), "DIR");
  return text;
}

const PublishedData& published(std::string_view name) {
  for (const PublishedData& data : published_data())
    if (data.name == name) return data;
  throw std::logic_error("no such data");
}

TEST(PublishedData, SumsAreSha256AndSizesAreThoseOfWholeSets) {
  std::set<std::string_view> names;
  for (const PublishedData& data : published_data()) {
    names.insert(data.name);
    for (const PublishedFile& file : data.files) {
      for (const std::string_view sum : {file.sum.sha256, file.compressed.sha256, data.archive_sum.sha256})
        EXPECT_TRUE(sum.empty() ||
                    (sum.size() == 64 && sum.find_first_not_of("0123456789abcdef") == std::string_view::npos))
            << data.name << " " << file.name;
      EXPECT_GT(file.sum.size, 0);
    }
    EXPECT_EQ(data.archive.empty(), data.archive_sum.size == 0);
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"mnist", "fashion_mnist", "cifar10", "cifar100"}));
}

TEST(PublishedData, IsWhatThePageSays) {
  const std::string page = text_of(kConfigs.parent_path() / "docs/reference/data_files.md");
  const auto expect_row = [&](std::string_view name, const FileSum& sum) {
    const std::string row = "| `" + std::string(name) + "` | " + std::to_string(sum.size) + " | " +
                            (sum.sha256.empty() ? "" : "`" + std::string(sum.sha256) + "` ") + "|";
    EXPECT_NE(page.find(row), std::string::npos) << row;
  };
  for (const PublishedData& data : published_data()) {
    const std::string key = "`data.name = \"" + std::string(data.name) + "\"`";
    EXPECT_NE(page.find(key), std::string::npos) << key;
    if (!data.archive.empty()) expect_row(data.archive, data.archive_sum);
    for (const PublishedFile& file : data.files) {
      expect_row(file.name, file.sum);
      if (file.compressed.size > 0) expect_row(std::string(file.name) + ".gz", file.compressed);
    }
  }
}

TEST(PublishedFiles, AreListedWhereTheyAreMissing) {
  const Scratch scratch;
  const ProgramRun run = check("mnist", scratch.folder());
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_NE(run.err.find("no such file"), std::string::npos) << run.err;
  EXPECT_EQ(with_dir(run.out, scratch.folder()),
            "mnist is read from DIR\n"
            "\n"
            "file                           bytes   SHA-256                                                  "
            "          "
            "state\n"
            "train-images-idx3-ubyte.gz   9912422   "
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609   "
            "missing\n"
            "train-labels-idx1-ubyte.gz     28881   "
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c   "
            "missing\n"
            "t10k-images-idx3-ubyte.gz    1648877   "
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6   "
            "missing\n"
            "t10k-labels-idx1-ubyte.gz       4542   "
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6   "
            "missing\n"
            "\n");
}

TEST(PublishedFiles, NamesWrongOnesAndWhatWasFound) {
  const Scratch scratch;
  write_text(scratch / "train-labels-idx1-ubyte.gz", "not found");
  write_text(scratch / "t10k-labels-idx1-ubyte", std::string(10008, 'x'));
  Sha256 sum;
  sum.update(std::string(10008, 'x'));
  const ProgramRun run = check("mnist", scratch.folder());
  EXPECT_EQ(run.exit_code, 3);
  const std::string out = with_dir(run.out, scratch.folder());
  EXPECT_NE(out.find("wrong: DIR/train-labels-idx1-ubyte.gz: 9 bytes\n"), std::string::npos) << out;
  EXPECT_NE(out.find("wrong: DIR/t10k-labels-idx1-ubyte: 10008 bytes, SHA-256 " + sum.hex() + "\n"),
            std::string::npos)
      << out;
}

// Samples that can be read are reported, too, but a wrong file decides the exit code.
TEST(PublishedFiles, AreWrongIfOnlyTheChecksumDiffers) {
  if (!has_mnist()) GTEST_SKIP() << missing_mnist();
  const Scratch scratch;
  link_mnist(scratch.folder());
  const ProgramRun run = check("fashion_mnist", scratch.folder());
  EXPECT_EQ(run.exit_code, 3) << run.err;
  EXPECT_NE(run.out.find("wrong: "), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("\nclass "), std::string::npos) << run.out;
}

// The test files here are compressed differently from the published ones.
TEST(PublishedFiles, MayBeCompressedDifferentlyOrNotAtAll) {
  if (!has_mnist()) GTEST_SKIP() << missing_mnist();
  const Scratch scratch;
  for (const auto& file : {mnist_images(), mnist_labels()})
    std::filesystem::copy_file(file, scratch / file.filename().string());
  const std::vector<CheckedFile> files = check_files(published("mnist"), scratch.folder());
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[0].state, FileState::missing);
  for (const std::size_t i : {2u, 3u}) EXPECT_EQ(files[i].state, FileState::repacked) << i;
}

TEST(PublishedFiles, HaveTheRightSizeWhereNoChecksumIsKnown) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "cifar-100-binary");
  for (const auto& [name, size] : {std::pair{"train.bin", 153700000}, std::pair{"test.bin", 30740000}}) {
    write_text(scratch / "cifar-100-binary" / name, "");
    std::filesystem::resize_file(scratch / "cifar-100-binary" / name, static_cast<std::uintmax_t>(size));
  }
  const std::vector<CheckedFile> files = check_files(published("cifar100"), scratch.folder());
  ASSERT_EQ(files.size(), 2u);
  for (const CheckedFile& file : files) EXPECT_EQ(file.state, FileState::unverified) << file.path;
}

TEST(PublishedFiles, IncludeTheArchiveUntilItIsUnpacked) {
  const Scratch scratch;
  write_text(scratch / "cifar-10-binary.tar.gz", "torn");
  const std::vector<CheckedFile> files = check_files(published("cifar10"), scratch.folder());
  ASSERT_EQ(files.size(), 7u);
  EXPECT_EQ(files[0].path.filename(), "cifar-10-binary.tar.gz");
  EXPECT_EQ(files[0].state, FileState::wrong);
  EXPECT_EQ(files[0].problem, "4 bytes");
  EXPECT_EQ(files[1].state, FileState::missing);
}

TEST(PublishedFiles, AreJsonObjectsBeforeThoseOfTheSets) {
  const Scratch scratch;
  const ProgramRun run = check("fashion_mnist", scratch.folder(), /*as_json=*/true);
  EXPECT_EQ(run.exit_code, 3);
  std::istringstream lines(run.out);
  std::string first;
  std::getline(lines, first);
  const auto json = nlohmann::json::parse(first);
  EXPECT_EQ(json["file"], (scratch / "train-images-idx3-ubyte.gz").string());
  EXPECT_EQ(json["bytes"], 26421880);
  EXPECT_EQ(json["sha256"], "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84");
  EXPECT_EQ(json["state"], "missing");
  EXPECT_EQ(json["usable"], false);
}

TEST(PublishedFiles, AreThoseOfAConfig) {
  const Scratch scratch;
  write_text(scratch / "a.toml", "[data]\nname = \"mnist\"\nroot = \"files\"\n");
  const ProgramRun run = run_program({"data", "check", (scratch / "a.toml").string()});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_EQ(with_dir(run.out, scratch.folder()).find("mnist is read from DIR/files\n"), 0u) << run.out;
}

TEST(RemovedCommand, NamesThePageThatReplacesIt) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"data", "fetch"}, {"data", "fetch", "mnist", "--json"}}) {
    const ProgramRun run = run_program(words);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.err,
              "kindling data fetch: the command was removed; docs/reference/data_files.md says where to "
              "download the files, and `kindling data check NAME` compares them with their checksums\n");
  }
}

}  // namespace
}  // namespace kindling
