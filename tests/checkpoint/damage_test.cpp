// Flipped bits and truncation: detected, or without any effect.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <iostream>
#include <random>

#include "checkpoint/saved_states.h"
#include "kindling/base/error.h"
#include "support/scratch.h"

namespace kindling {
namespace {

enum class Found { damage, same, other };

// True if the file still contains what save_step() wrote at step 7.
Found reading(const std::filesystem::path& path) {
  try {
    const bool is_same = holds_step(path, 7) && checkpoint_info(SafetensorsFile(path)).run_id == "run" &&
                         checkpoint_info(SafetensorsFile(path)).monitored_value == 0.5;
    return is_same ? Found::same : Found::other;
  } catch (const CheckpointError&) {
    return Found::damage;
  }
}

// The same for a file without checksums, which is not a checkpoint.
Found plain_reading(const std::filesystem::path& path) {
  try {
    const SafetensorsFile file(path);
    std::vector<float> values(values_at(7).size() + 1);
    if (file.index().tensors.size() != 2) return Found::other;
    file.read(file.index().tensors[0], values.data());
    file.read(file.index().tensors[1], values.data() + (values.size() - 1) / 2);
    values.pop_back();
    const bool is_same = values == values_at(7) && file.index().metadata == metadata_at(7, "run", 0.5) &&
                         file.index().tensors[0].name == "model.a" &&
                         file.index().tensors[1].name == "model.b";
    return is_same ? Found::same : Found::other;
  } catch (const CheckpointError&) {
    return Found::damage;
  }
}

// A file whose bytes are changed in place and restored.
class Damaged {
 public:
  explicit Damaged(const std::filesystem::path& path)
      : bytes_(read_file(path, 1 << 20)), descriptor_(::open(path.c_str(), O_WRONLY)) {}
  ~Damaged() { ::close(descriptor_); }

  std::size_t size() const { return bytes_.size(); }
  std::size_t header_end() const {
    return 8 + static_cast<unsigned char>(bytes_[0]) + 256u * static_cast<unsigned char>(bytes_[1]);
  }
  void flip(std::size_t bit) {
    bytes_[bit / 8] = static_cast<char>(bytes_[bit / 8] ^ 1 << bit % 8);
    EXPECT_EQ(::pwrite(descriptor_, &bytes_[bit / 8], 1, static_cast<off_t>(bit / 8)), 1);
  }
  void cut(std::size_t size) { EXPECT_EQ(::ftruncate(descriptor_, static_cast<off_t>(size)), 0); }
  void mend() {
    EXPECT_EQ(::pwrite(descriptor_, bytes_.data(), bytes_.size(), 0), static_cast<ssize_t>(bytes_.size()));
  }

 private:
  std::string bytes_;
  int descriptor_;
};

class Damage : public testing::Test {
 protected:
  Damage() { save_step(path_, 7, "run", 0.5); }
  const Scratch scratch_{memory_folder()};
  const std::filesystem::path path_ = scratch_ / "step-00000007.safetensors";
};

TEST_F(Damage, OfAnyBitOfTheHeaderIsDetected) {
  ASSERT_EQ(reading(path_), Found::same);
  Damaged file(path_);
  std::size_t tries = 0;
  for (std::size_t bit = 0; bit < 8 * file.header_end(); ++bit, ++tries) {
    file.flip(bit);
    EXPECT_EQ(reading(path_), Found::damage) << "byte " << bit / 8 << ", bit " << bit % 8;
    file.flip(bit);
  }
  std::cout << "R6: " << tries << " flipped bits of the header, all found\n";
}

TEST_F(Damage, AtRandomIsDetected) {
  Damaged file(path_);
  std::mt19937 random(11);
  for (int i = 0; i < 10'000; ++i) {
    std::vector<std::size_t> bits(1 + random() % 3);
    for (std::size_t& bit : bits) file.flip(bit = random() % (8 * file.size()));
    std::ranges::sort(bits);
    const bool is_undone = bits.size() > 1 && std::ranges::adjacent_find(bits) != bits.end();
    const Found found = reading(path_);
    EXPECT_TRUE(found == Found::damage || (is_undone && found == Found::same)) << bits.front();
    for (const std::size_t bit : bits) file.flip(bit);
  }
  EXPECT_EQ(reading(path_), Found::same);
  std::cout << "R6: 10000 random flips of 1 to 3 bits, all found\n";
}

TEST_F(Damage, ByTruncationIsDetectedAtEveryLength) {
  Damaged file(path_);
  for (std::size_t size = 0; size < file.size(); ++size) {
    file.cut(size);
    EXPECT_EQ(reading(path_), Found::damage) << size;
    file.mend();
  }
  EXPECT_EQ(reading(path_), Found::same);
  std::cout << "R6: " << file.size() << " lengths, all found\n";
}

TEST_F(Damage, IsUndetectedWithoutChecksums) {
  save_step(path_, 7, "run", 0.5, WithChecksums::no);
  ASSERT_EQ(plain_reading(path_), Found::same);
  Damaged file(path_);
  std::size_t unseen = 0;
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    file.flip(bit);
    if (plain_reading(path_) == Found::other) ++unseen;
    file.flip(bit);
  }
  EXPECT_GT(unseen, 8 * 100u);  // each bit of the values, to begin with
  std::cout << "R6: without checksums " << unseen << " of " << 8 * file.size() << " flipped bits go unseen\n";
}

}  // namespace
}  // namespace kindling
