#include "kindling/formats/torch_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

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
        "the key of load_state_file";
    EXPECT_EQ(error_text<CheckpointError>([&] { TorchFile{path}; }),
              path.string() + ": the file's object is not a state dict" + rest);
    for (const auto& [key, found] : {std::pair{"net", "there is no entry with"},
                                     {"epoch", "there is no state dict under"},
                                     {"optimizer", "there is no state dict under"}})
      EXPECT_EQ(error_text<CheckpointError>([&, wanted = key] { TorchFile(path, wanted); }),
                path.string() + ": " + found + " the key \"" + key + "\"" + rest);
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

// The same Linear(2, 2) in the format before 1.6, as a whole module, and as a TorchScript program.
TEST(TorchFile, ReadsOldFilesModulesAndPrograms) {
  const SafetensorsFile wanted(kFixtures / "expected" / "nested.safetensors");
  for (const std::string version : kVersions)
    for (const char* name : {"before_1_6.pt", "module.pt", "script.pt"}) {
      SCOPED_TRACE(version + " " + name);
      const std::filesystem::path path = kFixtures / version / name;
      expect_holds(TorchFile(path), wanted);
      expect_holds(TorchFile::of_bytes(read_file(path, 100'000), "x"), wanted);
    }
}

// Tensors outside of the only state dict could be what the user wants.
TEST(TorchFile, NeedsNoKeyIfOneStateDictHasAllTensors) {
  using namespace torch_bytes;
  const std::string state = dict("w", pickled_tensor());
  const auto file_of = [&](const std::string& beside) {
    return torch_file_of("}(" + text("epoch") + integer(3) + text("model") + dict("state_dict", state) +
                         text("x") + beside + "u");
  };
  EXPECT_EQ(TorchFile::of_bytes(file_of("N"), "x.pt").tensors().size(), 1u);
  EXPECT_EQ(
      torch_refusal(file_of(pickled_tensor())),
      "x.pt: the file's object is not a state dict; expected: the key \"model.state_dict\", which is a state "
      "dict; pass the key: --key of kindling import, or the key of load_state_file");
  EXPECT_EQ(torch_refusal(file_of(pickled_tensor()), "model.state_dict"), "(no error)");
  EXPECT_EQ(torch_refusal(file_of(pickled_tensor()), "model"),
            "x.pt: there is no state dict under the key \"model\"; expected: the key \"model.state_dict\", "
            "which is "
            "a state dict; pass the key: --key of kindling import, or the key of load_state_file");
}

TEST(TorchFile, NamesTheEntriesThatAreNotTensors) {
  using namespace torch_bytes;
  const TorchFile file = TorchFile::of_bytes(torch_file_of("}(" + text("w") + pickled_tensor() + text("n") +
                                                           integer(3) + text("f") + name("os", "f") + ")Ru"),
                                             "x.pt");
  EXPECT_EQ(file.tensors().size(), 1u);
  EXPECT_EQ(file.skipped(), (std::vector<std::string>{"\"n\" (a number)", "\"f\" (an object of \"os.f\")"}));
}

// The packed parameters of a quantized layer are a tuple of tensors.
TEST(TorchFile, RefusesToLoseTensors) {
  using namespace torch_bytes;
  const std::string tuple = pickled_tensor() + "\x85", other = name("x", "Y") + tuple + "R";
  for (const std::string& lost : {tuple, other, dict("v", tuple)}) {
    const std::string refusal =
        torch_refusal(torch_file_of("}(" + text("w") + pickled_tensor() + text("p") + lost + "u"));
    EXPECT_EQ(refusal.find("x.pt: its entry \"p\" contains tensors and is not one"), 0u) << refusal;
  }
  const std::string number =
      torch_refusal(torch_file_of("}(" + text("w") + pickled_tensor() + integer(1) + pickled_tensor() + "u"));
  EXPECT_EQ(number.find("x.pt: its entry 1 contains tensors and is not one"), 0u) << number;
}

// Callbacks of Lightning have states with tensors of one value each.
TEST(TorchFile, SuggestsNoKeysOfSingleNumbers) {
  using namespace torch_bytes;
  const std::string number = pickled_tensor({.sizes = {}, .strides = {}});
  const std::string two = "}(" + text("weights") + dict("w", pickled_tensor()) + text("callback") +
                          dict("best_score", number) + "u";
  EXPECT_NE(torch_refusal(torch_file_of(two)).find("expected: the key \"weights\", which"), std::string::npos)
      << torch_refusal(torch_file_of(two));
  EXPECT_EQ(torch_refusal(torch_file_of(two), "callback"), "(no error)");
}

// A value that a tensor's function takes may change the tensor.
TEST(TorchFile, RefusesTensorsThatOthersMake) {
  using namespace torch_bytes;
  const std::string tensor = pickled_tensor(), foreign = name("x", "Y");
  const std::pair<std::string, std::string> cases[] = {
      {name("torch._utils", "_rebuild_qtensor") + tensor + "\x85R", "_rebuild_qtensor"},
      {name("torch._utils", "_rebuild_sparse_tensor") + tensor + "\x85R", "_rebuild_sparse_tensor"},
      {name("torch._tensor", "_rebuild_from_type_v2") + "(" + name("torch._utils", "_rebuild_tensor_v2") +
           foreign + ")}tR",
       "_rebuild_from_type_v2"},
      {name("torch._utils", "_rebuild_parameter") + "(" + tensor + "\x88" + foreign + "tR",
       "_rebuild_parameter"},
      {tensor + "(" + tensor + "tb", "__setstate__"}};
  for (const auto& [value, function] : cases)
    EXPECT_EQ(torch_refusal(torch_file_of(dict("w", value)))
                  .find("x.pt, tensor \"w\": it is a tensor made by \"" + function +
                        "\"; expected: a dense tensor; convert"),
              0u)
        << torch_refusal(torch_file_of(dict("w", value)));
}

TEST(TorchFile, DescribesFilesWithoutWeights) {
  using namespace torch_bytes;
  const auto expect_says = [](const std::string& text, const std::string& found) {
    EXPECT_NE(text.find(found), std::string::npos) << text;
  };
  expect_says(torch_refusal(torch_file_of(integer(3))),
              "x.pt: it contains no tensors, only a number; expected: a state dict");
  expect_says(torch_refusal(torch_file_of("}")), "x.pt: it contains no tensors, only a dict");
  expect_says(torch_refusal(torch_file_of(dict("a", "}")), "a"),
              "x.pt, \"a\": it contains no tensors, only a dict");
  expect_says(torch_refusal(torch_file_of(dict("epoch", integer(3))), "x"),
              "there is no entry with the key \"x\"");
  expect_says(torch_refusal(torch_file_of(pickled_tensor())), "x.pt: it is a tensor; expected: a state dict");
  expect_says(torch_refusal("something else"), "it does not begin like a file of torch.save");
  expect_says(torch_refusal(""), "it does not begin like a file of torch.save");
  std::vector<ZipPart> big = parts_of(pickle(dict("w", pickled_tensor())));
  big.push_back({.name = "x/byteorder", .bytes = "big"});
  expect_says(torch_refusal(zip_of(big)), "its byte order is \"big\"; expected: \"little\"");
  EXPECT_EQ(error_text<CheckpointError>([&] { TorchFile("/no/such/file.pt"); }).find("/no/such/file.pt: "),
            0u);
}

TEST(TorchFile, NamesOtherFilesByTheirFirstBytes) {
  const Scratch scratch;
  const std::pair<std::string, std::string> cases[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 10\n", "it is a Git LFS pointer"},
      {"<!DOCTYPE html>\n<html>", "it is an HTML page"},
      {"\n <HTML><head>", "it is an HTML page"},
      {"<?xml version=\"1.0\"?><Error>", "it is an XML page"},
      {std::string("\x1f\x8b\x08\0\0\0\0\0\0\0", 10), "it is compressed by gzip"},
      {std::string("\x80\x04\x95\x1d\0\0\0\0\0\0\0}\x94.", 14), "it is a plain Python pickle"},
      {"\x89HDF\r\n\x1a\n12345678", "it is an HDF5 file"},
      {std::string("x/") + std::string(255, '\0') + "ustar  ", "it is a tar archive"}};
  for (const auto& [bytes, found] : cases) {
    EXPECT_EQ(torch_refusal(bytes).find("x.pt: " + found), 0u) << torch_refusal(bytes);
    write_file_atomically(scratch / "x.safetensors", bytes);
    const std::string refusal =
        error_text<CheckpointError>([&] { SafetensorsFile{scratch / "x.safetensors"}; });
    EXPECT_NE(refusal.find("x.safetensors: " + found), std::string::npos) << refusal;
  }
}

// --- compared with Python ---

// Each kind of checkpoint that people share (make_checkpoints.py), bit-identical to torch.load's values.
TEST(TorchFile, ReadsEachKindOfCheckpoint) {
  const std::string python = python_with_torch();
  if (python.empty()) GTEST_SKIP() << "there is no Python with PyTorch; KINDLING_TORCH_PYTHON can name one";
  const Scratch scratch;
  const std::string program = (kFixtures.parent_path() / "torch" / "make_checkpoints.py").string(),
                    list = (scratch / "list").string();
  ASSERT_EQ(std::system((python + " '" + program + "' '" + scratch.folder().string() + "' >'" + list +
                         "' 2>'" + list + ".log'")
                            .c_str()),
            0)
      << read_file(list + ".log", 100'000);
  std::istringstream lines(read_file(list, 100'000));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    SCOPED_TRACE(line);
    std::istringstream words(line);
    std::string file, expected, key;
    words >> file >> expected >> key;
    expect_holds(TorchFile(scratch / file, key), SafetensorsFile(scratch / expected));
  }
  EXPECT_GE(count, 40);
}

TEST(TorchFile, SuggestsPythonCodeThatConvertsRefusedTensors) {
  using namespace torch_bytes;
  const std::string sparse = name("torch._utils", "_rebuild_sparse_tensor") + pickled_tensor() + "\x85R";
  const auto code = [](const std::string& suffix, const std::string& weights_only) {
    return "import torch, safetensors.torch; sd = torch.load(\"x.pt\", map_location=\"cpu\", weights_only=" +
           weights_only + ")" + suffix +
           "; dense = lambda t: t.dequantize() if t.is_quantized else t.to(torch.complex64) if "
           "t.is_complex() else "
           "t.to_dense(); safetensors.torch.save_file({name: "
           "dense(t).resolve_conj().resolve_neg().contiguous().clone() for name, t in sd.items() if "
           "torch.is_tensor(t)}, \"x.safetensors\")";
  };
  const std::string found =
      "x.pt, tensor \"w\": it is a tensor made by \"_rebuild_sparse_tensor\"; expected: a dense tensor; "
      "convert it in "
      "Python";
  EXPECT_EQ(torch_refusal(torch_file_of(dict("w", sparse))), found + ": " + code("", "True"));
  const std::string two = "}(" + text("model") + dict("w", sparse) + text("x") + name("os", "system") + "u";
  EXPECT_EQ(
      torch_refusal(torch_file_of(two), "model"),
      found + ", which runs code of the file, so only if you trust it: " + code("[\"model\"]", "False"));
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
  ASSERT_EQ(run("import torch, fractions\nw = torch.tensor([1.0, 2.0])\n"
                "q = torch.quantize_per_tensor(w, 0.5, 0, torch.qint8)\n"
                "torch.save({'w': q, 'x': w, 'n': 3}, 'quantized.pt')\n"
                "torch.save({'w': w.to_sparse(), 'x': w}, 'sparse.pt')\n"
                "torch.save({'w': w.to(torch.complex128), 'x': w}, 'complex.pt')\n"
                "torch.save({'w': w.to(torch.complex64).conj(), 'x': w}, 'conjugate.pt')\n"
                "torch.save({'w': w.to_sparse(), 'x': w}, 'old.pt', _use_new_zipfile_serialization=False)\n"
                "torch.save({'m': {'w': q, 'x': w}, 'f': fractions.Fraction(1, 2), 'y': w}, 'nested.pt')\n"
                "layer = torch.nn.Linear(2, 1)\nlayer.weight.data = w.reshape(1, 2).to(torch.complex128)\n"
                "torch.save({'m': layer, 'y': w}, 'module.pt')\n"
                "torch.save({'m': {'w': w, 'x': w}}, 'stored.pt')\nimport zipfile\n"
                "with zipfile.ZipFile('stored.pt') as a, zipfile.ZipFile('compressed.pt', 'w', 8) as b:\n"
                "    [b.writestr(name, a.read(name)) for name in a.namelist()]\n"),
            0)
      << read_file(scratch / "log", 100'000);
  std::string program;  // all in one, because a start of Python takes seconds
  for (const char* name :
       {"quantized", "sparse", "complex", "conjugate", "old", "nested", "module", "compressed"}) {
    const bool is_nested = std::string("nested module compressed").find(name) != std::string::npos;
    const std::string refusal = error_text<CheckpointError>(
        [&] { TorchFile(scratch / (std::string(name) + ".pt"), is_nested ? "m" : ""); });
    const std::size_t begin = refusal.find("import torch");
    ASSERT_NE(begin, std::string::npos) << refusal;
    program += refusal.substr(begin) + "\n";
  }
  ASSERT_EQ(run(program), 0) << read_file(scratch / "log", 100'000);
  const auto converted = [&](const std::string& name) {
    SafetensorsFile file(scratch / (name + ".safetensors"));
    EXPECT_EQ(file.index().tensors.size(), 2u) << name;
    return file;
  };
  for (const char* name : {"quantized", "sparse", "old", "nested", "compressed"}) {
    const SafetensorsFile file = converted(name);
    const TensorEntry* const tensor = file.index().find("w");
    ASSERT_NE(tensor, nullptr) << name;
    std::vector<float> values(2);
    ASSERT_EQ(tensor->end - tensor->begin, 8u) << name;
    file.read(*tensor, values.data());
    EXPECT_EQ(values, (std::vector<float>{1, 2})) << name;
  }
  for (const char* name : {"complex", "conjugate"}) {
    const SafetensorsFile file = converted(name);
    ASSERT_NE(file.index().find("w"), nullptr);
    EXPECT_EQ(file.index().find("w")->type, TensorType::complex64) << name;
    EXPECT_EQ(file.index().find("x")->type, TensorType::float32) << name;
  }
  EXPECT_NE(converted("module").index().find("weight"), nullptr);
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
  EXPECT_EQ(read({.offset = 2, .sizes = {2, 4}, .strides = {1, 0}}),
            (std::vector<float>{2, 2, 2, 2, 3, 3, 3, 3}));
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
  expect_refused({.sizes = {-2, -3}}, "a size or stride is not a number of at least 0");
  expect_refused({.strides = {-3, 1}}, "a size or stride is not a number of at least 0");
  expect_refused({.strides = {1}}, "it has 2 sizes and 1 strides");
  expect_refused({.sizes = std::vector<std::int64_t>(65, 1), .strides = std::vector<std::int64_t>(65, 1)},
                 "it has 65 sizes and 65 strides");
  expect_refused({.key = "1"}, "its storage \"1\" is not in the file");
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
