// Modified bytes: refused, or the same values; never a crash.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/formats/torch_file.h"
#include "support/places_tried.h"
#include "support/scratch.h"
#include "support/torch_bytes.h"

namespace kindling {
namespace {

using namespace torch_bytes;

using TorchValues = std::map<std::string, std::string>;

TorchValues values_of_bytes(const std::string& bytes) {
  const TorchFile file = TorchFile::of_bytes(bytes, "x.pt");
  TorchValues all;
  for (const TorchTensor& tensor : file.tensors()) {
    std::string values(tensor.size_bytes(), '\0');
    file.read(tensor, values.data());
    all[tensor.name] = values;
  }
  return all;
}

std::string hostile_refusal(const std::string& bytes) {
  return error_text<CheckpointError>([&] { values_of_bytes(bytes); });
}

struct Outcomes {
  int refused = 0, equal = 0;
};

void expect_refused_or_equal(const std::string& bytes, const TorchValues& wanted, Outcomes& outcomes) {
  try {
    EXPECT_EQ(values_of_bytes(bytes), wanted);
    ++outcomes.equal;
  } catch (const CheckpointError&) {
    ++outcomes.refused;
  }
}

class HostileTorchFile : public testing::TestWithParam<const char*> {
 protected:
  const std::string whole_ =
      read_file(std::filesystem::path(KINDLING_FIXTURES) / GetParam() / "gpt.pt", 100'000);
  const TorchValues wanted_ = values_of_bytes(whole_);
};

TEST_P(HostileTorchFile, IsRefusedOrUnchangedAfterAnyFlippedBit) {
  Outcomes outcomes;
  for (std::size_t i = 0; i < whole_.size() * 8; i += kPlaceStride) {
    std::string flipped = whole_;
    flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ 1 << i % 8);
    expect_refused_or_equal(flipped, wanted_, outcomes);
    if (HasFailure()) FAIL() << "byte " << i / 8 << ", bit " << i % 8;
  }
  std::cout << outcomes.refused + outcomes.equal << " flips: " << outcomes.refused << " refused, "
            << outcomes.equal << " without effect\n";
  EXPECT_GT(outcomes.refused, outcomes.equal);
}

TEST_P(HostileTorchFile, IsRefusedIfTruncated) {
  for (std::size_t size = 0; size < whole_.size(); ++size)
    EXPECT_NE(hostile_refusal(whole_.substr(0, size)), "(no error)") << size;
  std::cout << whole_.size() << " lengths refused\n";
}

INSTANTIATE_TEST_SUITE_P(Versions, HostileTorchFile, testing::Values("torch_1.13.1", "torch_2.13.0"),
                         [](const auto& info) { return std::string(info.index == 0 ? "v1" : "v2"); });

// With a correct CRC, so that only the pickle reader can detect it.
TEST(HostilePickle, IsRefusedOrAStateDictAfterAnyFlippedBit) {
  const std::string good = pickle("}(" + text("a") + pickled_tensor() + text("b") +
                                  pickled_tensor({.sizes = {3, 2}, .strides = {1, 3}}) + text("c") +
                                  name("torch._utils", "_rebuild_parameter") + "(" + pickled_tensor() +
                                  "\x88" + kEmptyOrderedDict + "tRu");
  ASSERT_EQ(values_of_bytes(zip_of(parts_of(good))).size(), 3u);
  int refused = 0, read = 0;
  for (std::size_t i = 0; i < good.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = good;
      flipped[i] = static_cast<char>(flipped[i] ^ 1 << bit);
      ++(hostile_refusal(zip_of(parts_of(flipped))) == "(no error)" ? read : refused);
    }
  std::cout << refused + read << " flips: " << refused << " refused, " << read << " read\n";
  EXPECT_GT(refused, 10 * read);
}

TEST(HostilePickle, IsRefusedForOtherInstructions) {
  const std::string known =
      ".N\x88\x89KMJ\x8aGXc()]}t\x85\x86\x87"
      "aesuqrhjQRb";
  int refused = 0;
  for (int code = 0; code < 256; ++code) {
    if (known.find(static_cast<char>(code)) != std::string::npos) continue;
    const std::string refusal =
        hostile_refusal(torch_file_of(dict("w", pickled_tensor()) + static_cast<char>(code)));
    EXPECT_NE(refusal.find("its instruction " + std::to_string(code) + " does not occur"), std::string::npos)
        << refusal;
    ++refused;
  }
  EXPECT_EQ(refused, 256 - static_cast<int>(known.size()));
}

TEST(HostilePickle, IsRefusedForOtherNames) {
  for (const auto& [module, what] : {std::pair{"os", "system"},
                                     {"builtins", "eval"},
                                     {"__builtin__", "getattr"},
                                     {"torch", "load"},
                                     {"torch._utils", "_rebuild_tensor"},
                                     {"torch.storage", "_load_from_bytes"},
                                     {"collections", "OrderedDict.__init__"},
                                     {"torch", "FloatTensor"},
                                     {"", ""}}) {
    const std::string refusal =
        hostile_refusal(torch_file_of(name(module, what) + "(" + text("echo") + "tR"));
    EXPECT_EQ(refusal.find("x.pt, data.pkl, byte 2: it names \"" + std::string(module) + "." + what + "\""),
              0u)
        << refusal;
  }
}

TEST(HostilePickle, IsRefusedWithTheReason) {
  const std::string ordered_dict = name("collections", "OrderedDict"),
                    rebuild = name("torch._utils", "_rebuild_tensor_v2");
  const std::pair<std::string, std::string> cases[] = {
      {"", "an instruction lacks its operands"},
      {"t", "an instruction lacks its operands"},
      {"((u", "an instruction lacks its operands"},
      {"N(\x85", "an instruction lacks its operands"},
      {"(N", "it ends before the pickle is complete"},
      {"NN", "it ends before the pickle is complete"},
      {"N.", "it ends before the pickle is complete"},
      {"h\1", "it recalls a value that it never stored"},
      {"NNa", "it adds items to None"},
      {"](NNu", "it adds items to a list"},
      {"}(Nu", "a dict's last key has no value"},
      {"}NNs", "a dict's key is None"},
      {"X\xff\xff\xff\xff", "the pickle ends within an instruction"},
      {"cos", "the pickle ends within a name"},
      {"\x8a\x09" + std::string(9, '\0'), "it has a number of more than 64 bits"},
      {"NQ", "it has a persistent reference to something other than a storage"},
      {"NNR", "a call's arguments are None"},
      {"N)R", "it calls None in a way that does not occur in state dicts"},
      {ordered_dict + "(NtR", "it calls a Python name in a way that does not occur in state dicts"},
      {rebuild + ")R", "it has a tensor with unsupported properties"},
      {"N}b", "it sets attributes of None"},
      {"}Nb", "it sets attributes of a dict"},
  };
  for (const auto& [body, found] : cases) {
    const std::string refusal = hostile_refusal(torch_file_of(body));
    EXPECT_EQ(refusal.find("x.pt, data.pkl, byte "), 0u) << refusal;
    EXPECT_NE(refusal.find(": " + found), std::string::npos) << refusal;
  }
  EXPECT_NE(hostile_refusal(zip_of(parts_of("\x80\x04N."))).find("it is not a pickle of protocol 2"),
            std::string::npos);
}

TEST(HostilePickle, IsHandledIfDeepOrCircular) {
  std::string deep, wide = "]";
  for (int i = 0; i < 200'000; ++i) deep += "](";
  for (int i = 0; i < 200'000; ++i) deep += "e";
  EXPECT_NE(hostile_refusal(torch_file_of(deep)).find("it contains a list"), std::string::npos);
  const std::string circular = "}q\1" + text("me") + "h\1s";
  EXPECT_NE(hostile_refusal(torch_file_of(circular)).find("entry \"me\": it is a dict"), std::string::npos);
  for (int i = 0; i < 4'000'000; ++i) wide += "N";
  EXPECT_NE(hostile_refusal(torch_file_of(wide)).find("it has more than 4000000 values"), std::string::npos);
}

// --- the archive ---

std::string zip_refusal(const std::vector<ZipPart>& parts, const ZipEnd& end = {}) {
  return hostile_refusal(zip_of(parts, end));
}
const std::vector<ZipPart> kGoodParts = parts_of(pickle(dict("w", pickled_tensor())));

TEST(HostileZip, IsReadFromAnyWriterThatStores) {
  const TorchValues wanted = {{"w", kGoodParts[1].bytes}};
  EXPECT_EQ(values_of_bytes(zip_of(kGoodParts)), wanted);
  EXPECT_EQ(values_of_bytes(zip_of(kGoodParts, {.in_64 = true})), wanted);
  std::vector<ZipPart> large = kGoodParts;
  large[1].in_64 = true;
  EXPECT_EQ(values_of_bytes(zip_of(large, {.in_64 = true})), wanted);
}

TEST(HostileZip, IsRefusedForItsEntries) {
  const auto expect_refused = [](auto change, const std::string& found) {
    std::vector<ZipPart> parts = kGoodParts;
    change(parts[1]);
    const std::string refusal = zip_refusal(parts);
    EXPECT_NE(refusal.find(found), std::string::npos) << refusal;
  };
  expect_refused([](ZipPart& part) { part.method = 8; }, "x.pt, entry \"x/data/0\": it is compressed");
  expect_refused([](ZipPart& part) { part.flags = 1; }, "it is encrypted");
  expect_refused([](ZipPart& part) { part.directory_size = 1'000; }, "it ends outside the archive");
  expect_refused([](ZipPart& part) { part.name = "x/data.pkl"; }, "its name appears twice");
  for (const std::string name : {"../x", "x/../y", "x/..", "..", "/x", "x\\y", ""})
    expect_refused([&](ZipPart& part) { part.name = name; }, "points outside the archive");
  expect_refused([](ZipPart& part) { part.name = std::string("x\0y", 3); }, "points outside the archive");
}

TEST(HostileZip, IsRefusedWhereEntriesOverlap) {
  std::vector<ZipPart> parts = kGoodParts;
  parts[0].directory_size += 10;  // overlaps the next header, and the pickle's CRC does not match either
  EXPECT_NE(zip_refusal(parts).find("x.pt, entry \"x/data/0\": it overlaps another entry"), std::string::npos)
      << zip_refusal(parts);
}

TEST(HostileZip, IsRefusedForItsEnd) {
  EXPECT_NE(zip_refusal(kGoodParts, {.behind = "x"}).find("the end of the zip archive is invalid"),
            std::string::npos);
  std::string bytes = zip_of(kGoodParts);
  bytes[bytes.size() - 6] ^= 1;  // the offset of the directory
  EXPECT_NE(hostile_refusal(bytes).find("the zip directory does not end where the archive does"),
            std::string::npos);
  bytes = zip_of(kGoodParts);
  bytes[bytes.size() - 12] = bytes[bytes.size() - 14] = 100;  // entries
  EXPECT_NE(hostile_refusal(bytes).find("the zip directory is too short for its entries"), std::string::npos);
  bytes = zip_of(kGoodParts);
  bytes[bytes.size() - 12] = bytes[bytes.size() - 14] = 1;
  EXPECT_NE(hostile_refusal(bytes).find("the zip directory continues after its entries"), std::string::npos);
  bytes = zip_of(kGoodParts, {.in_64 = true});
  bytes[bytes.size() - 14] = bytes[bytes.size() - 12] = 1,
                       bytes[bytes.size() - 13] = bytes[bytes.size() - 11] = 0;
  EXPECT_NE(hostile_refusal(bytes).find("the two end records of the zip archive differ"), std::string::npos);
}

TEST(HostileZip, IsRefusedIfValuesDoNotMatchTheirCrc) {
  for (const FakeTensor& fake : {FakeTensor{}, FakeTensor{.sizes = {3, 2}, .strides = {1, 3}},
                                 FakeTensor{.sizes = {2}, .strides = {1}}}) {
    std::string bytes = zip_of(parts_of(pickle(dict("w", pickled_tensor(fake)))));
    const std::size_t place = bytes.find(kGoodParts[1].bytes);
    bytes[place + 23] ^= 1;  // the last byte of the storage
    const TorchFile file = TorchFile::of_bytes(bytes, "x.pt");
    float values[6];
    for (int again = 0; again < 2; ++again)
      EXPECT_EQ(error_text<CheckpointError>([&] { file.read(file.tensors()[0], values); }),
                "x.pt, entry \"x/data/0\": its bytes do not match the CRC-32 in the archive; "
                "the file is "
                "damaged: copy it again, or save it again");
  }
}

}  // namespace
}  // namespace kindling
