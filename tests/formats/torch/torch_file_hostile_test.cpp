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

const std::string kSixFloats = parts_of("")[1].bytes;

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

// It has no checksum: the bits of its values are not detected.
TEST(HostileOldTorchFile, IsRefusedOrReadAfterAnyChange) {
  const std::string good = old_torch_file_of(pickle(dict("w", pickled_tensor())));
  const TorchValues wanted = {{"w", kSixFloats}};
  ASSERT_EQ(values_of_bytes(good), wanted);
  EXPECT_EQ(values_of_bytes(good + "more"), wanted);  // as in torch.load
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(hostile_refusal(good.substr(0, size)), "(no error)") << size;
  int refused = 0, read = 0;
  for (std::size_t i = 0; i < good.size() - kSixFloats.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = good;
      flipped[i] = static_cast<char>(flipped[i] ^ 1 << bit);
      ++(hostile_refusal(flipped) == "(no error)" ? read : refused);
    }
  std::cout << refused + read << " flips: " << refused << " refused, " << read << " read\n";
  EXPECT_GT(refused, 5 * read);
}

TEST(HostileOldTorchFile, IsRefusedWithTheReason) {
  const auto expect_says = [](const std::string& bytes, const std::string& found) {
    EXPECT_NE(hostile_refusal(bytes).find(found), std::string::npos) << hostile_refusal(bytes);
  };
  const auto change = [](std::string bytes, const std::string& from, const std::string& to) {
    return bytes.replace(bytes.find(from), from.size(), to);
  };
  const std::string good = old_torch_file_of(pickle(dict("w", pickled_tensor())));
  expect_says(change(good, integer(1001), integer(1002)),
              "x.pt: its protocol is a number; expected: the number 1001");
  expect_says(change(good, "]" + text("0") + "a", "]" + text("1") + "a"),
              "storage \"1\": no tensor has this storage");
  expect_says(change(good, "]" + text("0") + "a", "]"), "its storage \"0\" is not in the file");
  expect_says(change(good, "]" + text("0") + "a", "N"), "its list of storages is None");
  expect_says(change(good, integer(6) + "tQ", integer(7) + "tQ"), "storage \"0\": the file ends within it");
  expect_says(change(good, integer(6) + "tQ", integer(-1) + "tQ"), "storage \"0\": it has -1 values");
  expect_says(change(good, integer(6) + "tQ", integer(std::int64_t{1} << 62) + "tQ"), "values");
  expect_says(change(good, "FloatStorage", "WrongStorage"), "its type torch.WrongStorage is unknown");
}

// --- TorchScript ---

TEST(HostileScript, ReadsWhatItsCodeNames) {
  const std::string tensor = pickled_tensor();
  const auto refusal = [](const std::string& attributes, const std::string& code) {
    return hostile_refusal(script_file_of(pickle(script_module(attributes)), code));
  };
  const std::string both = text("w") + tensor + text("b") + tensor;
  EXPECT_EQ(values_of_bytes(script_file_of(pickle(script_module(both + text("x") + tensor)), kScriptCode)),
            (TorchValues{{"w", kSixFloats}, {"b", kSixFloats}}));
  EXPECT_EQ(values_of_bytes(
                script_file_of(pickle(script_module(both + text("m") + script_module(both))), kScriptCode)),
            (TorchValues{{"w", kSixFloats}, {"b", kSixFloats}, {"m.w", kSixFloats}, {"m.b", kSixFloats}}));
  EXPECT_NE(refusal(text("w") + tensor, kScriptCode).find("it has no attribute \"b\""), std::string::npos);
  EXPECT_NE(refusal(both, "").find("its code has no class \"__torch__.m.M\""), std::string::npos);
  EXPECT_NE(refusal(both, "class M(Module):\n").find("a TorchScript program without parameters"),
            std::string::npos);
  EXPECT_NE(refusal(text("w") + integer(3) + text("b") + tensor, kScriptCode).find("its \"w\" is a number"),
            std::string::npos);
  EXPECT_NE(refusal(both + text("p") + name("torch._utils", "_rebuild_qtensor") + ")R", kScriptCode)
                .find("its attribute \"p\" contains quantized or other tensors"),
            std::string::npos);
}

// A module that contains itself, and modules that contain two of the next.
TEST(HostileModule, IsHandledIfCircularOrDeep) {
  const auto module = [](const std::string& modules) {
    return name("x", "Net") + ")\x81}(" + text("_parameters") + "}" + text("_buffers") + "}" +
           text("_modules") + "}(" + modules + "uub";
  };
  const std::string circular = name("x", "Net") + ")\x81q\1}(" + text("_parameters") +
                               dict("w", pickled_tensor()) + text("_buffers") + "}" + text("_modules") +
                               dict("me", "h\1") + "ub";
  EXPECT_NE(hostile_refusal(torch_file_of(circular)).find("modules are nested too deeply"),
            std::string::npos);
  std::string twofold = module("");
  for (int i = 0; i < 200; ++i) {
    twofold += std::string("q") + static_cast<char>(i) + "0";
    twofold += module(text("a") + "h" + static_cast<char>(i) + text("b") + "h" + static_cast<char>(i));
  }
  EXPECT_NE(hostile_refusal(torch_file_of(twofold)), "(no error)");
}

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

// The instructions of protocols 2 to 5 that torch.save can write. The others belong to protocols 0 and 1, to
// Python's extension registry, and to buffers outside of the pickle.
TEST(HostilePickle, IsRefusedForOtherInstructions) {
  const std::string known =
      ".N\x88\x89KMJ\x8a\x8bGXT\x8cU\x8d"
      "CB\x8e\x96)]}\x8f(01qr\x94hj\x95t\x85\x86\x87l\x91"
      "dae\x90suc\x93QR\x81\x92ob";
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

// Python would call or construct each of these when it loads the file, in every way that a pickle knows.
TEST(HostilePickle, NeverCallsAnything) {
  const std::filesystem::path mark = std::filesystem::temp_directory_path() / "kindling_pickle_called";
  std::filesystem::remove(mark);
  const std::string command = text("touch '" + mark.string() + "'");
  const std::string system = name("os", "system");
  const auto stack_name = [](const std::string& module, const std::string& called) {
    return text(module) + text(called) + "\x93";
  };
  const std::pair<const char*, std::string> calls[] = {
      {"REDUCE", system + command + "\x85R"},
      {"REDUCE of a name on the stack", stack_name("posix", "system") + command + "\x85R"},
      {"NEWOBJ", system + command + "\x85\x81"},
      {"NEWOBJ_EX", system + command + "\x85}\x92"},
      {"OBJ", "(" + system + command + "o"},
      {"BUILD", name("x", "Y") + ")\x81" + dict("state", command) + "b"},
      {"APPEND", name("x", "List") + ")\x81" + command + "a"},
      {"APPENDS", name("x", "List") + ")\x81(" + command + "e"},
      {"ADDITEMS", name("x", "Set") + ")\x81(" + command + "\x90"},
      {"SETITEM", name("x", "Dict") + ")\x81" + command + command + "s"},
      {"SETITEMS", name("x", "Dict") + ")\x81(" + command + command + "u"},
      {"a call's result", system + command + "\x85R" + command + "\x85R"},
      {"getattr", name("__builtin__", "getattr") + system + text("__call__") + "\x86R" + command + "\x85R"},
      {"eval", name("__builtin__", "eval") + command + "\x85R"},
      {"torch.load", name("torch", "load") + command + "\x85R"},
      {"_load_from_bytes", name("torch.storage", "_load_from_bytes") + command + "\x85R"},
      {"OrderedDict", name("collections", "OrderedDict") + command + "\x85R"},
      {"defaultdict", name("collections", "defaultdict") + system + "\x85R" + command + command + "s"},
      {"_rebuild_tensor_v2", name("torch._utils", "_rebuild_tensor_v2") + command + "\x85R"},
      {"_rebuild_from_type_v2",
       name("torch._tensor", "_rebuild_from_type_v2") + "(" + system + system + command + "\x85" + "}tR"},
      {"Parameter", name("torch.nn.parameter", "Parameter") + system + "\x85R"}};
  for (const auto& [what, call] : calls) {
    EXPECT_NE(hostile_refusal(torch_file_of(call)).find("expected: a state dict"), std::string::npos) << what;
    // Next to the weights, it does not matter.
    const std::string two = "}(" + text("w") + dict("a", pickled_tensor()) + text("x") + call + "u";
    EXPECT_EQ(TorchFile::of_bytes(torch_file_of(two), "x.pt", "w").tensors().size(), 1u) << what;
    EXPECT_FALSE(std::filesystem::exists(mark)) << what;
  }
}

TEST(HostilePickle, IsRefusedWithTheReason) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "an instruction lacks its operands"},
      {"t", "an instruction lacks its operands"},
      {"((u", "an instruction lacks its operands"},
      {"N(\x85", "an instruction lacks its operands"},
      {"(N", "it ends before the pickle is complete"},
      {"NN", "it ends before the pickle is complete"},
      {"h\1", "it recalls a value that it never stored"},
      {"NNa", "it adds items to None"},
      {"](NNu", "it adds items to a list"},
      {"}(Nu", "a dict's last key has no value"},
      {"X\xff\xff\xff\xff", "the pickle ends within an instruction"},
      {"cos", "the pickle ends within a name"},
      {"NQ", "it has a persistent reference to something other than a storage"},
      {"NNR", "a call's arguments are None"},
      {"N}b", "it sets attributes of None"},
      {text("x") + "N\x93", "a name is not a string"},
      {"]N\x90", "an instruction lacks its operands"},
      {"](N\x90", "it adds items to a list"},
  };
  for (const auto& [body, found] : cases) {
    const std::string refusal = hostile_refusal(torch_file_of(body));
    EXPECT_EQ(refusal.find("x.pt, data.pkl, byte "), 0u) << refusal;
    EXPECT_NE(refusal.find(": " + found), std::string::npos) << refusal;
  }
  EXPECT_NE(hostile_refusal(zip_of(parts_of("\x80\x06N."))).find("it is a pickle of protocol 6"),
            std::string::npos);
  EXPECT_NE(hostile_refusal(torch_file_of("N.")).find("data.pkl: it continues after the pickle"),
            std::string::npos);
}

TEST(HostilePickle, IsHandledIfDeepOrCircular) {
  std::string deep, wide = "]";
  for (int i = 0; i < 200'000; ++i) deep += "](";
  for (int i = 0; i < 200'000; ++i) deep += "e";
  EXPECT_NE(hostile_refusal(torch_file_of(deep)).find("it contains no tensors, only a list"),
            std::string::npos);
  const std::string circular = "}q\1" + text("me") + "h\1s";
  EXPECT_NE(hostile_refusal(torch_file_of(circular)).find("it contains no tensors, only a dict"),
            std::string::npos);
  const std::string with_tensor = "}q\1(" + text("me") + "h\1" + text("w") + pickled_tensor() + "u";
  EXPECT_NE(
      hostile_refusal(torch_file_of(with_tensor)).find("its entry \"me\" contains tensors and is not one"),
      std::string::npos)
      << hostile_refusal(torch_file_of(with_tensor));
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
