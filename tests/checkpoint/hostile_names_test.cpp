// Untrusted names never become paths.
#include <gtest/gtest.h>

#include "checkpoint/saved_states.h"
#include "kindling/base/error.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using namespace std::string_literals;

const std::vector<std::string> kHostile = {"../../x",
                                           "/etc/passwd",
                                           "..",
                                           ".",
                                           "",
                                           "a\0b"s,
                                           "a\nb",
                                           "\x01\x7f",
                                           "a\\b\"",
                                           "a b; rm -rf *",
                                           "model./",
                                           "\u202e\u00e9",
                                           std::string(65'536, 'n')};

TEST(HostileNames, OfTensorsAreRestoredAndNeverPaths) {
  const Scratch scratch;
  const float value = 1.5f;
  std::vector<TensorToWrite> tensors;
  for (const std::string& name : kHostile) tensors.push_back({name, TensorType::float32, {}, &value, 4});
  const CheckpointFolder folder(scratch / "checkpoints", {});
  write_safetensors(folder.file_of(1), tensors, metadata_at(1, "run"), WithChecksums::yes);
  const SafetensorsFile file(folder.file_of(1));
  file.check();
  for (const std::string& name : kHostile) {
    ASSERT_NE(file.index().find(name), nullptr) << name.substr(0, 50);
    float read = 0;
    file.read(*file.index().find(name), &read);
    EXPECT_EQ(read, value);
  }
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{".lock", "step-00000001.safetensors"}));
  EXPECT_EQ(names_in(scratch.folder()), std::vector<std::string>{"checkpoints"});
}

TEST(HostileNames, OfRunsAreRestoredAndNeverPaths) {
  const Scratch scratch;
  const CheckpointFolder folder(scratch / "checkpoints", {.keep_last = 2, .keep_best = 0});
  std::int64_t step = 0;
  for (const std::string& run_id : kHostile) {
    for (int i = 0; i < 3; ++i, ++step) save_step(folder.file_of(step), step, run_id);
    EXPECT_EQ(newest_valid_checkpoint(folder.path())->run_id, run_id);
    folder.prune(run_id);
    folder.set_aside_after(run_id, step);
  }
  EXPECT_EQ(list_checkpoints(folder.path()).size(), 2 * kHostile.size());
  EXPECT_EQ(names_in(folder.path()).size(), 1 + 2 * kHostile.size());
  EXPECT_EQ(names_in(scratch.folder()), std::vector<std::string>{"checkpoints"});
}

TEST(HostileNames, AreRefusedIfNotUtf8) {
  const Scratch scratch;
  EXPECT_THROW(save_step(scratch / "x", 1, "\xff\xfe"), CheckpointError);
  EXPECT_TRUE(names_in(scratch.folder()).empty());
}

// Messages go to terminals and logs: control characters are escaped, and the length is limited.
TEST(HostileNames, InErrorsAreShortAndHarmless) {
  const Scratch scratch;
  const float value = 1.5f;
  for (const std::string& name : kHostile) {
    const TensorToWrite tensor = {name, TensorType::float32, {}, &value, 4};
    write_safetensors(scratch / "x", {&tensor, 1}, {}, WithChecksums::yes);
    std::string bytes = read_file(scratch / "x", 1 << 20);
    bytes.back() ^= 1;
    write_file_atomically(scratch / "x", bytes);
    const std::string text = error_text<CheckpointError>([&] { SafetensorsFile(scratch / "x").check(); });
    EXPECT_NE(text.find("its values have the checksum"), std::string::npos);
    EXPECT_LT(text.size(), 500u);
    EXPECT_EQ(std::ranges::count_if(text, [](unsigned char c) { return c < ' '; }), 0) << text;
  }
}

}  // namespace
}  // namespace kindling
