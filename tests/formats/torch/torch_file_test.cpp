#include "kindling/formats/torch_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/python.h"
#include "support/scratch.h"
#include "support/torch_bytes.h"

namespace kindling {
namespace {

const std::filesystem::path kFixtures = KINDLING_FIXTURES;
constexpr const char* kVersions[] = {"torch_1.13.1", "torch_2.4.1", "torch_2.13.0"};

std::string values_in(const TorchFile& file, const TorchTensor& tensor) {
  std::string values(tensor.size_bytes(), '\0');
  file.read(tensor, values.data());
  return values;
}

std::string torch_refusal(const std::string& bytes, const std::string& key = "") {
  return error_text<CheckpointError>([&] {
    const TorchFile file = TorchFile::of_bytes(bytes, "x.pt", key);
    for (const TorchTensor& tensor : file.tensors()) values_in(file, tensor);
  });
}

void expect_holds(const TorchFile& file, const SafetensorsFile& wanted) {
  EXPECT_EQ(file.tensors().size(), wanted.index().tensors.size());
  for (const TensorEntry& entry : wanted.index().tensors) {
    const TorchTensor* const tensor = file.find(entry.name);
    ASSERT_NE(tensor, nullptr) << entry.name;
    EXPECT_EQ(tensor->type, entry.type) << entry.name;
    EXPECT_EQ(tensor->shape, entry.shape) << entry.name;
    std::string values(entry.end - entry.begin, '\0');
    wanted.read(entry, values.data());
    EXPECT_EQ(values_in(file, *tensor), values) << entry.name;
  }
}

TEST(TorchFile, ReadsPyTorchsValuesBitIdentically) {
  for (const std::string version : kVersions)
    for (const std::string name : {"resnet", "gpt", "lstm", "kinds"}) {
      SCOPED_TRACE(version + " " + name);
      const std::filesystem::path path = kFixtures / version / (name + ".pt");
      const SafetensorsFile wanted(kFixtures / "expected" / (name + ".safetensors"));
      expect_holds(TorchFile(path), wanted);
      expect_holds(TorchFile::of_bytes(read_file(path, 100'000), "x"), wanted);
    }
}

TEST(TorchFile, KeepsTheOrderOfTheDict) {
  const TorchFile file(kFixtures / "torch_2.13.0" / "gpt.pt");
  std::vector<std::string> names;
  for (const TorchTensor& tensor : file.tensors()) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"mask", "wte.weight", "ln.weight", "ln.bias", "attn.weight",
                                             "attn.bias", "lm_head.weight"}));
}

TEST(TorchFile, ReportsWhichTensorsShareAStorage) {
  for (const std::string version : kVersions) {
    const TorchFile file(kFixtures / version / "gpt.pt");
    EXPECT_EQ(file.find("wte.weight")->storage, file.find("lm_head.weight")->storage);
    EXPECT_NE(file.find("wte.weight")->storage, file.find("ln.weight")->storage);
  }
}

TEST(TorchFile, ReadsTheStateDictUnderAKey) {
  for (const std::string version : kVersions) {
    const std::filesystem::path path = kFixtures / version / "nested.pt";
    expect_holds(TorchFile(path, "model"), SafetensorsFile(kFixtures / "expected" / "nested.safetensors"));
    const std::string rest =
        "; expected: the key \"model\", which is a state dict; pass the key: --key of kindling import, or "
        "the "
        "key of "
        "load_state_file";
    EXPECT_EQ(error_text<CheckpointError>([&] { TorchFile{path}; }),
              path.string() + ": the file's object is not a state dict" + rest);
    for (const char* key : {"net", "epoch", "optimizer"})
      EXPECT_EQ(error_text<CheckpointError>([&] { TorchFile(path, key); }),
                path.string() + ": there is no state dict under the key \"" + key + "\"" + rest);
  }
}

TEST(TorchFile, ListsTheKeysOfSeveralStateDicts) {
  using namespace torch_bytes;
  const std::string two = "}(" + text("a") + dict("w", pickled_tensor()) + text("b") +
                          dict("w", pickled_tensor()) + text("c") + "}" + text("n") + integer(3) + "u";
  EXPECT_NE(torch_refusal(torch_file_of(two)).find("one of the keys of state dicts: \"a\", \"b\";"),
            std::string::npos)
      << torch_refusal(torch_file_of(two));
  EXPECT_EQ(torch_refusal(torch_file_of(two), "b"), "(no error)");
}

TEST(TorchFile, DescribesFilesThatAreNotStateDicts) {
  using namespace torch_bytes;
  const auto expect_says = [](const std::string& text, const std::string& found) {
    EXPECT_NE(text.find(found), std::string::npos) << text;
  };
  for (const std::string version : kVersions) {
    const auto refusal_of = [&](const char* name) {
      return error_text<CheckpointError>([&] { TorchFile(kFixtures / version / name); });
    };
    expect_says(refusal_of("before_1_6.pt"), "it has the format of PyTorch before 1.6");
    expect_says(refusal_of("module.pt"),
                "it names \"torch.nn.modules.linear.Linear\", which does not occur in state dicts");
    expect_says(refusal_of("script.pt"), "it is compressed, like the code of TorchScript programs");
  }
  expect_says(torch_refusal(torch_file_of(integer(3))), "x.pt: it contains a number; expected: a state dict");
  expect_says(torch_refusal(torch_file_of(dict("epoch", integer(3)))),
              "x.pt, entry \"epoch\": it is a number");
  expect_says(torch_refusal("something else"), "it does not begin like a file of torch.save");
  expect_says(torch_refusal(""), "it does not begin like a file of torch.save");
  std::vector<ZipPart> big = parts_of(pickle(dict("w", pickled_tensor())));
  big.push_back({.name = "x/byteorder", .bytes = "big"});
  expect_says(torch_refusal(zip_of(big)), "its byte order is \"big\"; expected: \"little\"");
  EXPECT_EQ(error_text<CheckpointError>([&] { TorchFile("/no/such/file.pt"); }).find("/no/such/file.pt: "),
            0u);
}

TEST(TorchFile, SuggestsPythonCodeThatConvertsRefusedFiles) {
  using namespace torch_bytes;
  EXPECT_EQ(
      torch_refusal(torch_file_of(name("os", "system"))),
      "x.pt, data.pkl, byte 2: it names \"os.system\", which does not occur in state dicts; expected: "
      "tensors, numbers "
      "and strings in dicts; convert it in Python, which runs code of the file, so only if you trust it: "
      "import torch, safetensors.torch; sd = torch.load(\"x.pt\", map_location=\"cpu\", "
      "weights_only=False); sd = sd.state_dict() if hasattr(sd, \"state_dict\") else sd; "
      "safetensors.torch.save_file({name: t.contiguous().clone() for name, t in sd.items() if "
      "torch.is_tensor(t)}, \"x.safetensors\")");
  const std::string refusal = torch_refusal(torch_file_of(name("torch._utils", "_rebuild_tensor_v3")));
  EXPECT_NE(
      refusal.find("dicts; convert it in Python: import torch, safetensors.torch; sd = torch.load(\"x.pt\", "
                   "map_location=\"cpu\", weights_only=True); safetensors.torch.save_file("),
      std::string::npos)
      << refusal;
}

// The line after "import", as a user would paste it.
TEST(TorchFile, TellsThePythonThatWorksWhenPasted) {
  const std::string python = python_with_torch();
  if (python.empty() || std::system((python + " -c 'import safetensors.torch' >/dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "there is no Python with PyTorch and safetensors; KINDLING_TORCH_PYTHON can name one";
  const Scratch scratch;
  const std::string folder = scratch.folder().string();
  const auto run = [&](const std::string& program) {
    write_file_atomically(scratch / "run.py", program);
    return std::system(("cd '" + folder + "' && " + python + " run.py >log 2>&1").c_str());
  };
  ASSERT_EQ(run("import torch\nw = torch.tensor([1.0, 2.0])\n"
                "torch.save(torch.nn.Sequential(torch.nn.Linear(2, 3)), 'module.pt')\n"
                "torch.save({'w': w.to(torch.float8_e4m3fn), 'n': 3}, 'float8.pt')\n"
                "torch.save({'w': w.to(torch.complex128), 'x': w}, 'complex.pt')\n"
                "torch.save({'w': w.to(torch.complex64)}, 'read.pt')\n"),
            0)
      << read_file(scratch / "log", 100'000);
  const auto converted = [&](const std::string& name) {
    const std::string refusal = error_text<CheckpointError>([&] { TorchFile(scratch / (name + ".pt")); });
    const std::size_t begin = refusal.find("import torch");
    EXPECT_NE(begin, std::string::npos) << refusal;
    EXPECT_EQ(run(begin == std::string::npos ? "" : refusal.substr(begin)), 0)
        << read_file(scratch / "log", 100'000);
    return SafetensorsFile(scratch / (name + ".safetensors")).index();
  };
  EXPECT_EQ(converted("module").tensors.size(), 2u);
  ASSERT_NE(converted("float8").find("w"), nullptr);
  EXPECT_EQ(converted("float8").find("w")->type, TensorType::float8_e4m3fn);
  EXPECT_EQ(converted("complex").find("w")->type, TensorType::complex64);
  EXPECT_EQ(converted("complex").find("x")->type, TensorType::float32);
  EXPECT_EQ(TorchFile(scratch / "read.pt").find("w")->type, TensorType::complex64);
}

TEST(TorchFile, IsDetectedByItsFirstBytes) {
  for (const char* name : {"gpt.pt", "before_1_6.pt"})
    EXPECT_TRUE(is_torch_file(kFixtures / "torch_2.13.0" / name)) << name;
  EXPECT_FALSE(is_torch_file(kFixtures / "expected" / "gpt.safetensors"));
  const Scratch scratch;
  for (const char* start : {"", "PK"}) {
    write_file_atomically(scratch / "x.pt", start);
    EXPECT_FALSE(is_torch_file(scratch / "x.pt")) << start;
  }
}

// --- tensors that differ from their storage ---

TEST(TorchFile, ResolvesStridesOfAnyRank) {
  using namespace torch_bytes;
  const auto read = [](const FakeTensor& fake) {
    const TorchFile file = TorchFile::of_bytes(torch_file_of(dict("w", pickled_tensor(fake))), "x");
    std::vector<float> values(file.tensors()[0].size_bytes() / 4);
    file.read(file.tensors()[0], values.data());
    return values;
  };
  EXPECT_EQ(read({.sizes = {3, 2}, .strides = {1, 3}}), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(read({.offset = 1, .sizes = {2}, .strides = {3}}), (std::vector<float>{1, 4}));
  EXPECT_EQ(read({.offset = 5, .sizes = {}, .strides = {}}), (std::vector<float>{5}));
  EXPECT_EQ(read({.sizes = {1, 1, 2, 1}, .strides = {0, 77, 2, 9}}), (std::vector<float>{0, 2}));
  EXPECT_EQ(read({.sizes = {3, 1, 2}, .strides = {1, 5, 3}}), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(read({.offset = 9, .sizes = {0, 7}, .strides = {7, 1}}), (std::vector<float>{}));
}

TEST(TorchFile, RefusesTensorsOutsideTheirStorage) {
  using namespace torch_bytes;
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const auto expect_refused = [](const FakeTensor& fake, const std::string& found) {
    const std::string refusal = torch_refusal(torch_file_of(dict("w", pickled_tensor(fake))));
    EXPECT_EQ(refusal.find("x.pt, tensor \"w\": " + found), 0u) << refusal;
  };
  expect_refused({.offset = 1}, "its strides reach outside its storage");
  expect_refused({.strides = {4, 1}}, "its strides reach outside its storage");
  expect_refused({.strides = {kHuge, kHuge}}, "its strides reach outside its storage");
  expect_refused({.offset = kHuge}, "it starts after its storage");
  expect_refused({.offset = 6, .sizes = {}, .strides = {}}, "it starts after its storage");
  expect_refused({.offset = -1}, "it starts before its storage");
  expect_refused({.sizes = {kHuge, 3}}, "its shape overflows");
  expect_refused({.sizes = {0, kHuge, kHuge}, .strides = {1, 1, 1}}, "its shape overflows");
  expect_refused({.sizes = {7}, .strides = {0}}, "it has more values than its storage: 7 of 6");
  expect_refused({.sizes = {-2, -3}}, "a size or stride is not a number of at least 0");
  expect_refused({.strides = {-3, 1}}, "a size or stride is not a number of at least 0");
  expect_refused({.strides = {1}}, "it has 2 sizes and 1 strides");
  expect_refused({.sizes = std::vector<std::int64_t>(65, 1), .strides = std::vector<std::int64_t>(65, 1)},
                 "it has 65 sizes and 65 strides");
  expect_refused({.key = "1"}, "its storage \"1\" is not in the archive");
  expect_refused({.values = 7}, "its storage has 24 bytes, not 7 values");
  expect_refused({.type = "LongStorage"}, "its storage has 24 bytes, not 6 values");
  expect_refused({.values = -1}, "its storage has 24 bytes, not -1 values");
}

TEST(TorchFile, RefusesDuplicateAndInvalidNames) {
  using namespace torch_bytes;
  const std::string twice =
      torch_refusal(torch_file_of("}(" + text("w") + pickled_tensor() + text("w") + pickled_tensor() + "u"));
  EXPECT_EQ(twice.find("x.pt, tensor \"w\": its name appears twice"), 0u) << twice;
  const std::string broken = torch_refusal(torch_file_of(dict("w\xff", pickled_tensor())));
  EXPECT_NE(broken.find("its name is not valid UTF-8"), std::string::npos) << broken;
  const std::string number = torch_refusal(torch_file_of("}" + integer(1) + pickled_tensor() + "s"));
  EXPECT_NE(number.find("a key is a number; expected: the name of a tensor"), std::string::npos) << number;
}

// A file of a few kilobytes must not ask for gigabytes.
TEST(TorchFile, RefusesTooManyTensorsOnOneStorage) {
  using namespace torch_bytes;
  const auto shared = [](int times) {
    std::string body = "}(";
    for (int i = 0; i < times; ++i) body += text(std::to_string(i)) + pickled_tensor();
    return torch_file_of(body + "u");
  };
  EXPECT_EQ(torch_refusal(shared(256)), "(no error)");
  EXPECT_NE(torch_refusal(shared(257)).find("tensors share storages too often"), std::string::npos);
}

}  // namespace
}  // namespace kindling
