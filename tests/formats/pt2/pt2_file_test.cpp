#include "formats/pt2/pt2_file.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/places_tried.h"
#include "support/pt2_bytes.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using pt2_bytes::parts_of_archive;
using torch_bytes::zip_of;

class Pt2 : public testing::Test {
 protected:
  const std::string whole_ = read_file(std::filesystem::path(KINDLING_FIXTURES) / "program.pt2", 100'000);

  static std::string refusal(const std::string& bytes) {
    return error_text<CheckpointError>([&] { Pt2File::of_bytes(bytes, "x.pt2"); });
  }
  std::string refusal_with(const std::string& entry, const std::string& from, const std::string& to) const {
    return refusal(pt2_bytes::replaced(whole_, entry, from, to));
  }
};

std::string bytes_of_storage(const Pt2File& file, std::size_t storage) {
  std::string bytes(file.storage_bytes(storage), '\0');
  file.read_storage(storage, bytes.data());
  return bytes;
}

TEST_F(Pt2, HasTheProgramAndTheWeights) {
  const Pt2File file = Pt2File::of_bytes(whole_, "x.pt2");
  const ExportedProgram& program = file.program();
  ASSERT_EQ(program.inputs.size(), 11u);
  EXPECT_EQ(program.inputs[0].target, "net.0.weight");
  EXPECT_EQ(program.inputs[0].kind, ProgramInput::Kind::parameter);
  EXPECT_EQ(program.inputs[8].target, "net.1.num_batches_tracked");
  EXPECT_EQ(program.inputs[9].kind, ProgramInput::Kind::constant);
  EXPECT_EQ(program.inputs[10].kind, ProgramInput::Kind::user);
  EXPECT_EQ(program.nodes[3].target, "torch.ops.aten.batch_norm.default");
  EXPECT_EQ(program.nodes[3].layer, "net.1");
  EXPECT_EQ(program.nodes[3].inputs[5].name, "training");
  EXPECT_TRUE(std::get<bool>(program.nodes[3].inputs[5].argument.value));
  EXPECT_EQ(program.input_names, std::vector<std::string>{"x"});
  EXPECT_EQ(program.ranges.at("s77").first, 2);
  EXPECT_EQ(program.tensors.at("x").sizes[0].number, 5);
  EXPECT_EQ(program.tensors.at("x").sizes[1].number, 3);
  ASSERT_EQ(file.weights().size(), 9u);
  const auto weight = std::ranges::find(file.weights(), "net.0.weight", &ProgramWeight::name);
  ASSERT_NE(weight, file.weights().end());
  EXPECT_TRUE(weight->is_parameter);
  EXPECT_EQ(file.storage_bytes(weight->storage), 4u * 3 * 4);
  ASSERT_EQ(file.constants().size(), 1u);
  EXPECT_EQ(bytes_of_storage(file, file.constants()[0].storage),
            std::string("\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16));
}

TEST_F(Pt2, WritesACopyWithOtherValues) {
  const Scratch scratch;
  const Pt2File file = Pt2File::of_bytes(whole_, "x.pt2");
  std::vector<std::string> storages;
  for (std::size_t i = 0; i < file.num_storages(); ++i) storages.push_back(bytes_of_storage(file, i));
  storages[2].assign(storages[2].size(), 'x');
  file.write_copy(scratch / "copy.pt2", std::vector<std::string_view>(storages.begin(), storages.end()));
  const Pt2File copy(scratch / "copy.pt2");
  for (std::size_t i = 0; i < file.num_storages(); ++i) EXPECT_EQ(bytes_of_storage(copy, i), storages[i]);
  const auto before = parts_of_archive(whole_),
             after = parts_of_archive(read_file(scratch / "copy.pt2", 100'000));
  ASSERT_EQ(after.size(), before.size());
  int changed = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].name, before[i].name);
    changed += after[i].bytes != before[i].bytes ? 1 : 0;
  }
  EXPECT_EQ(changed, 1);
}

TEST_F(Pt2, ReadsDeflatedEntries) {
  const Pt2File file = Pt2File::of_bytes(torch_bytes::deflated_zip_of(parts_of_archive(whole_)), "x.pt2");
  const Pt2File stored = Pt2File::of_bytes(whole_, "x.pt2");
  EXPECT_EQ(file.program().nodes.size(), stored.program().nodes.size());
  for (std::size_t i = 0; i < file.num_storages(); ++i)
    EXPECT_EQ(bytes_of_storage(file, i), bytes_of_storage(stored, i));
}

TEST_F(Pt2, RefusesDeflatedEntriesWithWrongSizes) {
  auto parts = parts_of_archive(whole_);
  for (const std::uint64_t size : {parts[0].bytes.size() - 1, parts[0].bytes.size() + 1}) {
    auto lying = parts;
    lying[0].directory_size = size;
    const std::string text = error_text<CheckpointError>([&] {
      const Pt2File file = Pt2File::of_bytes(torch_bytes::deflated_zip_of(lying), "x.pt2");
      for (std::size_t i = 0; i < file.num_storages(); ++i) bytes_of_storage(file, i);
    });
    EXPECT_NE(text, "(no error)") << size;
  }
  parts.push_back({.name = "program/bomb", .bytes = std::string(std::size_t{64} << 20, '\0')});
  EXPECT_NE(
      refusal(torch_bytes::deflated_zip_of(parts)).find("more than a hundred times as large as the file"),
      std::string::npos);
}

TEST_F(Pt2, RefusesOtherFormatsAndVersions) {
  EXPECT_NE(refusal_with("model.json", "\"major\": 8", "\"major\": 9").find("major version 9; expected: 8"),
            std::string::npos);
  EXPECT_NE(refusal_with("archive_version", "0", "7").find("archive_version is \"7\""), std::string::npos);
  EXPECT_NE(refusal_with("byteorder", "little", "big").find("byteorder"), std::string::npos);
  EXPECT_NE(refusal_with("models/model.json", "{", "").find("not valid JSON"), std::string::npos);
  auto parts = parts_of_archive(whole_);
  std::erase_if(parts, [](const auto& part) { return part.name.ends_with("model.json"); });
  EXPECT_NE(refusal(zip_of(parts)).find("no entry models/model.json"), std::string::npos);
  EXPECT_NE(refusal(zip_of({{.name = "x/data.pkl", .bytes = "x"}})).find("no entry FOLDER/archive_format"),
            std::string::npos);
}

TEST_F(Pt2, RefusesValuesOutsideTheirStorage) {
  const std::string config = "model_weights_config.json";
  for (const auto& [from, to] :
       {std::pair("\"storage_offset\": {\"as_int\": 0}", "\"storage_offset\": {\"as_int\": 1}"),
        std::pair("\"storage_offset\": {\"as_int\": 0}", "\"storage_offset\": {\"as_int\": -1}"),
        std::pair("\"strides\": [{\"as_int\": 3}", "\"strides\": [{\"as_int\": 4}"),
        std::pair("\"strides\": [{\"as_int\": 3}", "\"strides\": [{\"as_int\": -3}"),
        std::pair("{\"as_int\": 4}, {\"as_int\": 3}", "{\"as_int\": 5}, {\"as_int\": 3}"),
        std::pair("{\"as_int\": 4}, {\"as_int\": 3}", "{\"as_int\": 4611686018427387905}, {\"as_int\": 3}"),
        std::pair("\"dtype\": 7", "\"dtype\": 8")})
    EXPECT_NE(refusal_with(config, from, to).find("are not within the"), std::string::npos) << to;
  EXPECT_NE(refusal_with(config, "\"dtype\": 7", "\"dtype\": 99").find("dtype 99"), std::string::npos);
  EXPECT_NE(refusal_with(config, "weight_3", "weight_x").find("no entry"), std::string::npos);
  EXPECT_NE(refusal_with(config, "\"use_pickle\": false", "\"use_pickle\": true").find("pickle"),
            std::string::npos);
}

// As Python saves a slice: with the whole storage.
TEST_F(Pt2, HasEntriesThatAreLongerThanTheirTensors) {
  auto parts = parts_of_archive(whole_);
  const auto weight =
      std::ranges::find_if(parts, [](const auto& part) { return part.name.ends_with("weight_3"); });
  ASSERT_NE(weight, parts.end());
  const auto with_bytes = [&](std::size_t count) {
    weight->bytes.resize(weight->bytes.size() + count);
    weight->directory_size = weight->bytes.size();
    return zip_of(parts);
  };
  EXPECT_EQ(refusal(with_bytes(8)), "(no error)");
  const std::string text = refusal(with_bytes(1));
  EXPECT_NE(text.find("bytes, which is not a whole number of values; expected: a multiple of "),
            std::string::npos)
      << text;
}

TEST_F(Pt2, RefusesUnsupportedPrograms) {
  const std::string model = "model.json";
  EXPECT_NE(refusal_with(model, "{\"as_bool\": true}", "{\"as_graph\": {\"name\": \"g\"}}")
                .find("control flow or of autocast"),
            std::string::npos);
  EXPECT_NE(refusal_with(model, "\"as_float\": 0.5", "\"as_custom_obj\": 1").find("as_custom_obj"),
            std::string::npos);
  EXPECT_NE(refusal_with(model, "{\"user_input\": {\"arg\"", "{\"token\": {\"arg\"").find("token"),
            std::string::npos);
  EXPECT_NE(refusal_with(model, "user_output", "gradient_to_parameter").find("without gradients"),
            std::string::npos);
  EXPECT_EQ(refusal_with(model, "builtins.tuple", "some.Class"), "(no error)");  // its tensors are enough
  EXPECT_NE(
      refusal_with(model, "\"target\": \"torch.ops", "\"goal\": \"torch.ops").find("it has no \"target\""),
      std::string::npos);
  EXPECT_NE(
      refusal_with(model, "\"inputs\": [{\"name\"", "\"inputs\": [3, {\"name\"").find("expected: an object"),
      std::string::npos);
}

TEST_F(Pt2, SurvivesAnyChangedByteOfTheProgram) {
  const auto parts = parts_of_archive(whole_);
  const auto model =
      std::ranges::find_if(parts, [](const auto& part) { return part.name.ends_with("model.json"); });
  std::size_t refused = 0, read = 0;
  for (std::size_t i = 0; i < model->bytes.size(); i += 3 * kPlaceStride) {
    auto changed = parts;
    changed[static_cast<std::size_t>(model - parts.begin())].bytes[i] ^= 0x11;
    try {
      Pt2File::of_bytes(zip_of(changed), "x.pt2");
      ++read;
    } catch (const CheckpointError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000 / kPlaceStride);
  EXPECT_GT(read, 100 / kPlaceStride);
}

}  // namespace
}  // namespace kindling
