#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "cli/commands/program_run.h"
#include "cli/data/file_check.h"
#include "cli/data/published_data.h"
#include "kindling/base/sha256.h"
#include "support/mnist_files.h"
#include "support/png_bytes.h"
#include "support/scratch.h"

namespace kindling {
namespace {

ProgramRun fetch(const std::string& name, const std::filesystem::path& root, bool as_json = false) {
  std::vector<std::string> words{"data", "fetch", name, "data.root=" + root.string()};
  if (as_json) words.emplace_back("--json");
  return run_program(words);
}

std::string with_dir(std::string text, const std::filesystem::path& folder) {
  for (std::size_t at = 0; (at = text.find(folder.string(), at)) != std::string::npos;)
    text.replace(at, folder.string().size(), "DIR");
  return text;
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

TEST(DataFetch, ListsFilesSumsAndCommandsWhereNothingIsThere) {
  const Scratch scratch;
  const ProgramRun run = fetch("mnist", scratch.folder());
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_EQ(run.err, "");
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
            "\n"
            "These commands download what is missing or wrong (this program does not):\n"
            "  mkdir -p DIR\n"
            "  curl -fL -o DIR/train-images-idx3-ubyte.gz "
            "https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz\n"
            "  curl -fL -o DIR/train-labels-idx1-ubyte.gz "
            "https://ossci-datasets.s3.amazonaws.com/mnist/train-labels-idx1-ubyte.gz\n"
            "  curl -fL -o DIR/t10k-images-idx3-ubyte.gz "
            "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-images-idx3-ubyte.gz\n"
            "  curl -fL -o DIR/t10k-labels-idx1-ubyte.gz "
            "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-labels-idx1-ubyte.gz\n"
            "  kindling data fetch mnist data.root=DIR\n");
}

TEST(DataFetch, NamesWrongFilesAndWhatWasFound) {
  const Scratch scratch;
  write_text(scratch / "train-labels-idx1-ubyte.gz", "not found");
  write_text(scratch / "t10k-labels-idx1-ubyte", std::string(10008, 'x'));
  Sha256 sum;
  sum.update(std::string(10008, 'x'));
  const ProgramRun run = fetch("mnist", scratch.folder());
  EXPECT_EQ(run.exit_code, 3);
  const std::string out = with_dir(run.out, scratch.folder());
  EXPECT_NE(out.find("wrong: DIR/train-labels-idx1-ubyte.gz: 9 bytes\n"), std::string::npos) << out;
  EXPECT_NE(out.find("wrong: DIR/t10k-labels-idx1-ubyte: 10008 bytes, SHA-256 " + sum.hex() + "\n"),
            std::string::npos)
      << out;
  EXPECT_NE(out.find("curl -fL -o DIR/t10k-labels-idx1-ubyte.gz "), std::string::npos) << out;
}

// The test files here are compressed differently from the published ones.
TEST(DataFetch, AcceptsFilesThatAreCompressedDifferentlyOrNotAtAll) {
  if (!has_mnist()) GTEST_SKIP() << missing_mnist();
  const Scratch scratch;
  for (const auto& file : {mnist_images(), mnist_labels()})
    std::filesystem::copy_file(file, scratch / file.filename().string());
  const std::vector<CheckedFile> files = check_files(published_data().front(), scratch.folder());
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[0].state, FileState::missing);
  for (const std::size_t i : {2u, 3u}) EXPECT_EQ(files[i].state, FileState::repacked) << i;
}

TEST(DataFetch, ExitsWith0WhenAllFilesAreRight) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "cifar-100-binary");
  for (const auto& [name, size] : {std::pair{"train.bin", 153700000}, std::pair{"test.bin", 30740000}}) {
    write_text(scratch / "cifar-100-binary" / name, "");
    std::filesystem::resize_file(scratch / "cifar-100-binary" / name, static_cast<std::uintmax_t>(size));
  }
  const ProgramRun run = fetch("cifar100", scratch.folder());
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_EQ(with_dir(run.out, scratch.folder()),
            "cifar100 is read from DIR\n"
            "\n"
            "file                             bytes   SHA-256   state\n"
            "cifar-100-binary/train.bin   153700000   -         size is right\n"
            "cifar-100-binary/test.bin     30740000   -         size is right\n"
            "-: no SHA-256 is known for this file; only its size is compared\n");
}

TEST(DataFetch, ArchivesAreDownloadedAndUnpacked) {
  const Scratch scratch;
  const ProgramRun run = fetch("cifar10", scratch.folder());
  EXPECT_EQ(run.exit_code, 3);
  const std::string out = with_dir(run.out, scratch.folder());
  EXPECT_NE(out.find("c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"), std::string::npos);
  EXPECT_NE(out.find("  curl -fL -o DIR/cifar-10-binary.tar.gz "
                     "'https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz'\n"
                     "  tar -xzf DIR/cifar-10-binary.tar.gz -C DIR\n"
                     "  kindling data fetch cifar10 data.root=DIR\n"),
            std::string::npos)
      << out;
}

TEST(DataFetch, PrintsAJsonObjectPerFile) {
  const Scratch scratch;
  const ProgramRun run = fetch("fashion_mnist", scratch.folder(), /*as_json=*/true);
  EXPECT_EQ(run.exit_code, 3);
  std::istringstream lines(run.out);
  std::string first;
  std::getline(lines, first);
  const auto json = nlohmann::json::parse(first);
  EXPECT_EQ(json["file"], (scratch / "train-images-idx3-ubyte.gz").string());
  EXPECT_EQ(json["bytes"], 26421880);
  EXPECT_EQ(json["sha256"], "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84");
  EXPECT_EQ(json["usable"], false);
  EXPECT_EQ(json["url"],
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/train-images-idx3-ubyte.gz");
}

TEST(DataFetch, TakesConfigsAndRefusesOtherData) {
  const Scratch scratch;
  write_text(scratch / "a.toml", "[data]\nname = \"mnist\"\nroot = \"files\"\n");
  const ProgramRun run = run_program({"data", "fetch", (scratch / "a.toml").string()});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_EQ(with_dir(run.out, scratch.folder()).find("mnist is read from DIR/files\n"), 0u) << run.out;
  const ProgramRun other = run_program({"data", "fetch", "digits"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_EQ(other.err,
            "kindling data fetch: 'digits' has no files that are known; expected: one of mnist, "
            "fashion_mnist, cifar10, cifar100\n");
}

}  // namespace
}  // namespace kindling
